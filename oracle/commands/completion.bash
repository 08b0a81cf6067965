# Completion of `python -m oracle`, musespark-routing and the scripts in ci/ for bash, made by
#   python -m oracle completion bash
# Put this into ~/.bashrc:   source <(python -m oracle completion bash)
# or keep what it prints in a file and source that, which starts no Python.

_musespark_routing_table() {
  cat <<'TABLE'
@TABLE@
TABLE
}

# Replies with the words among the arguments that begin with $current.
_musespark_routing_reply() {
  local word
  for word in "$@"; do
    [[ $word == "$current"* ]] && COMPREPLY+=("$word")
  done
}

_musespark_routing_files() {
  compopt -o filenames 2>/dev/null
  local IFS=$'\n'
  COMPREPLY+=($(compgen -f -- "$current"))
}

# Completes $current, in the context of the first argument, after the words in the others.
_musespark_routing_in() {
  local context=$1 row_context kind word more help moved previous takes=''
  shift
  local -a words=() options=() values=()
  for previous in "$@"; do
    while IFS='|' read -r row_context kind word more help; do
      if [[ $row_context == "$context" && $kind == word && $word == "$previous" ]]; then moved=$more; fi
    done < <(_musespark_routing_table)
    [[ -n $moved ]] && context=$moved moved=''
  done
  previous=${!#}
  (($#)) || previous=''
  while IFS='|' read -r row_context kind word more help; do
    [[ $row_context == "$context" ]] || continue
    case $kind in
      option)
        options+=("$word")
        [[ $word == "$previous" && $more != none ]] && takes=$more
        ;;
      value) [[ $word == "$previous" ]] && values+=("$more") ;;
      word) words+=("$word") ;;
      file) words+=(/) ;;
    esac
  done < <(_musespark_routing_table)
  case $takes in
    free) ;;
    file) _musespark_routing_files ;;
    one) _musespark_routing_reply "${values[@]}" ;;
    list)
      local before=''
      [[ $current == *,* ]] && before=${current%,*},
      for word in "${values[@]}"; do
        [[ ,$before == *",$word,"* ]] || _musespark_routing_reply "$before$word"
      done
      compopt -o nospace 2>/dev/null
      ;;
    *)
      if [[ $current == -* || ${#words[@]} == 0 ]]; then
        _musespark_routing_reply "${options[@]}"
        return
      fi
      for word in "${words[@]}"; do
        if [[ $word == / ]]; then _musespark_routing_files; else _musespark_routing_reply "$word"; fi
      done
      ;;
  esac
}

# The words before the cursor, `--option=value` as two.
_musespark_routing_before() {
  before=()
  local word
  for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    [[ $word == = ]] || before+=("$word")
  done
  current=${COMP_WORDS[COMP_CWORD]}
  [[ $current == = ]] && current=''
  return 0
}

_musespark_routing() {
  local current
  local -a before
  COMPREPLY=()
  _musespark_routing_before
  case ${COMP_WORDS[0]} in
    *ci/check) _musespark_routing_in check "${before[@]}" ;;
    *ci/*) _musespark_routing_in "ci/${COMP_WORDS[0]##*ci/}" "${before[@]}" ;;
    *) _musespark_routing_in oracle "${before[@]}" ;;
  esac
}

_musespark_routing_python() {
  local current place
  local -a before
  COMPREPLY=()
  _musespark_routing_before
  for place in "${!before[@]}"; do
    if [[ ${before[place]} == -m ]]; then
      if ((place + 1 == ${#before[@]})) || [[ ${before[place + 1]} == oracle?(.*) ]]; then
        _musespark_routing_in -m "${before[@]:place + 1}"
      fi
      break
    fi
  done
  if ((${#COMPREPLY[@]} == 0)) && [[ -n $_musespark_routing_previous ]]; then
    "$_musespark_routing_previous" "$@"
  fi
}

# Other uses of python complete as they did before.
_musespark_routing_previous=$(complete -p python 2>/dev/null | sed -n 's/.* -F \([^ ]*\) .*/\1/p')
[[ $_musespark_routing_previous == _musespark_routing_python ]] && _musespark_routing_previous=''

complete -F _musespark_routing musespark-routing ci/{check,gpu,peers,test} ./ci/{check,gpu,peers,test}
complete -o bashdefault -o default -F _musespark_routing_python python python3
