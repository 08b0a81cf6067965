// The routing translation unit includes it; the part of it that is compiled here uses nothing of it.
#pragma once
