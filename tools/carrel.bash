# bash completion for carrel; `make install` puts it where bash-completion finds it, or: source tools/carrel.bash
_carrel() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} command=${COMP_WORDS[1]-} i word
    local run_options='--memory --pids --cpus --disk --timeout --output-limit --root --writable-root --mount --env --env-file
        --pass-env --workdir --hostname --user --profile --net --interactive --tty --json --report --trace --help'
    local with_value=' --memory --pids --cpus --disk --timeout --output-limit --root --mount --env --env-file --pass-env --workdir
        --hostname --user --profile --net --report '
    COMPREPLY=()

    if ((COMP_CWORD == 1)); then
        mapfile -t COMPREPLY < <(compgen -W 'run plan doctor gc help --version --help' -- "$cur")
        return
    fi
    case $command in
        doctor | gc)
            mapfile -t COMPREPLY < <(compgen -W '--json --help' -- "$cur")
            return ;;
        run | plan) ;;
        *) return ;;
    esac

    # Where the box's own command begins, its words are files and programs, not our options.
    for ((i = 2; i < COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        if [[ $word == -- ]]; then
            ((i++))
            break
        elif [[ $word != -* ]]; then
            break
        elif [[ $with_value == *" $word "* || $with_value == *" $word"$'\n'* ]]; then
            ((i++))
            [[ ${COMP_WORDS[i]-} == = ]] && ((i++))     # bash makes a word of its own of '='
        fi
        while [[ ${COMP_WORDS[i + 1]-} == : ]]; do      # and of ':', as in SRC:DST:ro
            ((i += 2))
        done
    done
    if ((i < COMP_CWORD)); then
        compopt -o default 2>/dev/null
        return
    elif ((i == COMP_CWORD)) && [[ $cur != -* ]]; then
        mapfile -t COMPREPLY < <(compgen -c -- "$cur")
        compopt -o default 2>/dev/null
        return
    fi

    case $prev in
        --profile) mapfile -t COMPREPLY < <(compgen -W 'strict standard system' -- "$cur") ;;
        --net) mapfile -t COMPREPLY < <(compgen -W none -- "$cur") ;;
        --root) mapfile -t COMPREPLY < <(compgen -W host -- "$cur"; compgen -d -- "$cur") ;;
        --pass-env) mapfile -t COMPREPLY < <(compgen -e -- "$cur") ;;
        --mount | --env-file | --report) compopt -o default 2>/dev/null ;;
        --memory | --disk | --output-limit) mapfile -t COMPREPLY < <(compgen -W '64M 256M 512M 1G 4G' -- "$cur") ;;
        --timeout) mapfile -t COMPREPLY < <(compgen -W '10s 30s 1m 10m 1h' -- "$cur") ;;
        --pids | --cpus | --env | --workdir | --hostname | --user) ;;
        *) mapfile -t COMPREPLY < <(compgen -W "$run_options" -- "$cur") ;;
    esac
}
complete -F _carrel carrel
