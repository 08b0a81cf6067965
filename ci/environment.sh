# Sourced by the commands of this folder: `environment EXTRAS` makes .venv once and installs the project into it.
# A virtual environment sees the system's packages only where the system already has torch, so that a machine with a
# CUDA torch and its Triton keeps them.

python=${PYTHON:-python3}

environment() {
  local extras=$1 stamp
  stamp=.venv/.installed-$(printf '%s' "$extras" | tr -c 'a-z' '-')
  if [ ! -x .venv/bin/python ]; then
    local site=()
    if "$python" -c 'import torch' 2>/dev/null; then site=(--system-site-packages); fi
    "$python" -m venv "${site[@]}" .venv
    .venv/bin/python -m pip install --quiet --upgrade pip
  fi
  if cmp --silent pyproject.toml "$stamp"; then return; fi
  echo "installing into .venv: ${extras:-the compilers and NumPy}" >&2
  case $extras in
    *torch*) torch ;;
  esac
  .venv/bin/python -m pip install --quiet --editable ".${extras:+[$extras]}"
  cp pyproject.toml "$stamp"
}

# Without a GPU the CPU build of torch suffices, and is smaller by gigabytes; pip finds it on some machines only.
torch() {
  if .venv/bin/python -c 'import torch' 2>/dev/null || command -v nvidia-smi >/dev/null; then return; fi
  .venv/bin/python -m pip install --quiet 'torch==2.13.0+cpu' 2>/dev/null ||
    .venv/bin/python -m pip install --quiet 'torch==2.13.0'
}
