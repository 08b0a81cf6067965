# Completion of `python -m oracle`, musespark-routing and the scripts in ci/ for zsh, made by
#   python -m oracle completion zsh
# Put this into ~/.zshrc, after compinit:   source <(python -m oracle completion zsh)
# or keep what it prints in a file and source that, which starts no Python.

_musespark_routing_table() {
  cat <<'TABLE'
@TABLE@
TABLE
}

# Completes the current word, in the context of the first argument, after the words in the others.
_musespark_routing_in() {
  local context=$1 row_context kind word more help before moved takes='' paths='' previous=''
  shift
  local -a words options values
  for before in "$@"; do
    previous=$before moved=''
    while IFS='|' read -r row_context kind word more help; do
      if [[ $row_context == $context && $kind == word && $word == $before ]]; then moved=$more; fi
    done < <(_musespark_routing_table)
    if [[ -n $moved ]]; then context=$moved; fi
  done
  if compset -P '--[a-z-]##='; then previous=${IPREFIX%=}; fi
  while IFS='|' read -r row_context kind word more help; do
    [[ $row_context == $context ]] || continue
    case $kind in
      option)
        options+=("$word:$help")
        if [[ $word == $previous && $more != none ]]; then takes=$more; fi
        ;;
      value) if [[ $word == $previous ]]; then values+=("$more"); fi ;;
      word) words+=("$word:$help") ;;
      file) paths=1 ;;
    esac
  done < <(_musespark_routing_table)
  case $takes in
    free) _message value ;;
    file) _files ;;
    one) compadd -- $values ;;
    list)
      local given=$PREFIX
      compset -P '*,'
      for before in ${(s:,:)given%,*}; do
        if [[ $given == *,* ]]; then values=(${values:#$before}); fi
      done
      compadd -S '' -- $values
      ;;
    *)
      if [[ $PREFIX == -* || ( ${#words} == 0 && -z $paths ) ]]; then
        _describe -o option options
        return
      fi
      if ((${#words})); then _describe command words; fi
      if [[ -n $paths ]]; then _files; fi
      ;;
  esac
}

_musespark_routing() {
  setopt localoptions extendedglob
  local -a before
  before=(${words[2,CURRENT-1]})
  case ${words[1]} in
    *ci/check) _musespark_routing_in check $before ;;
    *ci/*) _musespark_routing_in ci/${words[1]##*ci/} $before ;;
    *) _musespark_routing_in oracle $before ;;
  esac
}

_musespark_routing_python() {
  setopt localoptions extendedglob
  local -a before
  before=(${words[2,CURRENT-1]})
  local place=${before[(i)-m]}
  if ((place <= ${#before})); then
    if ((place == ${#before})) || [[ ${before[place+1]} == oracle(|.*) ]]; then
      _musespark_routing_in -m ${before[place+1,-1]} && return
    fi
  fi
  # Other uses of python complete as they did before.
  if [[ -n $_musespark_routing_previous ]]; then $_musespark_routing_previous "$@"; fi
}

if [[ ${_comps[python]} != _musespark_routing_python ]]; then
  typeset -g _musespark_routing_previous=${_comps[python]}
fi
compdef _musespark_routing musespark-routing {,./}ci/{check,gpu,peers,test}
compdef _musespark_routing_python python python3
