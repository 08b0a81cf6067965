# Completion of `python -m oracle`, musespark-routing and the scripts in ci/ for fish, made by
#   python -m oracle completion fish
# Keep what it prints in ~/.config/fish/conf.d/musespark-routing.fish

function __musespark_routing_table
    printf '%s\n' \
@TABLE@
end

# Prints the context that the words before the cursor lead to; fails where they are not ours.
function __musespark_routing_context
    set -l before (commandline -opc)
    set -l context
    switch $before[1]
        case '*musespark-routing'
            set context oracle
        case '*ci/check'
            set context check
        case '*ci/gpu' '*ci/peers' '*ci/test'
            set context ci/(basename $before[1])
        case '*'
            set -l place (contains -i -- -m $before); or return 1
            set context -m
            set before $before[$place..-1]
            if set -q before[2]; and not string match -qr '^oracle(\..*)?$' -- $before[2]
                return 1
            end
    end
    for word in $before[2..-1]
        set -l row (__musespark_routing_table | string match -r -- '^'(string escape --style=regex -- "$context|word|$word|")'.*')
        and set context (string split -- '|' $row)[4]
    end
    echo $context
end

# Prints what may stand at the cursor, each with its description after a tab.
function __musespark_routing_offers
    set -l context (__musespark_routing_context); or return
    set -l before (commandline -opc)
    set -l current (commandline -ct)
    set -l previous $before[-1]
    set -l start ''
    if string match -qr -- '^--[a-z-]+=' $current
        set previous (string replace -r -- '=.*' '' $current)
        set start $previous=
    end
    set -l rows (__musespark_routing_table | string match -- "$context|*")
    set -l takes none
    for row in $rows
        set -l cells (string split -m 4 -- '|' $row)
        if test "$cells[2] $cells[3]" = "option $previous"
            set takes $cells[4]
        end
    end
    set -l offered 0
    for row in $rows
        set -l cells (string split -m 4 -- '|' $row)
        switch "$takes $cells[2]"
            case 'one value' 'list value'
                if test $cells[3] = $previous
                    set -l given ''
                    if test $takes = list
                        set given (string replace -- "$start" '' $current | string match -r -- '.*,'; or echo '')
                    end
                    contains -- $cells[4] (string split -- ',' "$given"); or echo $start$given$cells[4]
                end
            case 'none word'
                set offered 1
                printf '%s\t%s\n' $cells[3] $cells[5]
            case 'none file'
                set offered 1
                __fish_complete_path $current
        end
    end
    if test $takes = file
        __fish_complete_path (string replace -- "$start" '' $current)
    end
    if test $takes = none; and begin
            test $offered = 0; or string match -q -- '-*' $current
        end
        for row in $rows
            set -l cells (string split -m 4 -- '|' $row)
            if test $cells[2] = option
                printf '%s\t%s\n' $cells[3] $cells[5]
            end
        end
    end
end

for program in musespark-routing python python3
    complete -c $program -n '__musespark_routing_context >/dev/null' -f -a '(__musespark_routing_offers)'
end
for program in check gpu peers test
    complete -p "*/ci/$program" -n '__musespark_routing_context >/dev/null' -f -a '(__musespark_routing_offers)'
end
