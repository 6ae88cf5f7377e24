# bash completion of the command backendai.

_backendai() {
    local word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} verb='' index
    local verbs='create list show why logs ssh ssh-config code connect open end repair agents limits schema template'
    COMPREPLY=()
    for ((index = 1; index < COMP_CWORD; index++)); do
        [[ ${COMP_WORDS[index]} == -* ]] || { verb=${COMP_WORDS[index]}; break; }
    done
    if [[ -z $verb ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$verbs --help --verbose" -- "$word")
        return
    fi
    if [[ $word == -* ]]; then
        # The help lists the flags of each verb.
        mapfile -t COMPREPLY < <(compgen -W "$(backendai "$verb" --help 2>/dev/null | grep -oE -- '--[a-z-]+' | sort -u)" -- "$word")
        return
    fi
    case $verb in
        create)
            [[ $previous == --* ]] && return
            mapfile -t COMPREPLY < <(compgen -f -- "$word")
            ;;
        show | why | logs | ssh | code | open | end | repair)
            [[ $previous == "$verb" || $verb == end ]] || return
            # As the manager's timer has seen them: at once.
            mapfile -t COMPREPLY < <(compgen -W "$(backendai list --cached --names 2>/dev/null)" -- "$word")
            ;;
    esac
}

complete -o filenames -F _backendai backendai
