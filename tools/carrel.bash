# bash completion for carrel; `make install` puts it where bash-completion finds it, or: source tools/carrel.bash
# Boxes of the server, by id and name; nothing if there is no server.
_carrel_boxes() {
    carrel ps 2>/dev/null | awk 'NR > 1 { print $1; if ($2 != "-") print $2 }'
}

# The commands that talk to a server.
_carrel_client() {
    local command=$1 cur=$2 prev=$3 options='--url --json --help' i
    case $prev in
        --profile) mapfile -t COMPREPLY < <(compgen -W 'strict standard system' -- "$cur"); return ;;
        --on-idle) mapfile -t COMPREPLY < <(compgen -W 'delete pause' -- "$cur"); return ;;
        --store) mapfile -t COMPREPLY < <(compgen -W 'memory disk' -- "$cur"); return ;;
        --phase)
            mapfile -t COMPREPLY < <(compgen -W 'creating running paused stopped failed deleting deleted' -- "$cur"); return ;;
        --scope) mapfile -t COMPREPLY < <(compgen -W 'boxes:read boxes:write exec files ports admin' -- "$cur"); return ;;
        --memory | --disk | --output-limit | --request-memory)
            mapfile -t COMPREPLY < <(compgen -W '64M 256M 512M 1G 4G' -- "$cur"); return ;;
        --ttl | --idle-timeout | --timeout | --expires)
            mapfile -t COMPREPLY < <(compgen -W '30s 10m 1h 1d' -- "$cur"); return ;;
        --secret) mapfile -t COMPREPLY < <(compgen -S = -W "$(carrel secret list 2>/dev/null | awk 'NR > 1 { print $1 }')" -- "$cur")
            compopt -o nospace 2>/dev/null; return ;;
        --mount | --socket | --state | --config | --keeper | --from-file) compopt -o default 2>/dev/null; return ;;
        --volume) mapfile -t COMPREPLY < <(compgen -S :/ -W "$(carrel volume list 2>/dev/null | awk 'NR > 1 { print $1 }')" -- "$cur")
            compopt -o nospace 2>/dev/null; return ;;
        --name | --label | --env | --from-env | --cpus | --pids | --user | --hostname | --root | --key | --idempotency-key | --url | --workdir | --listen | --set) return ;;
    esac
    case $command in
        serve) options='--listen --socket --state --config --no-config --set --allow-anonymous --private --keeper --help' ;;
        create) options+=' --name --memory --cpus --pids --disk --request-memory --request-cpus --profile --root --writable-root
            --packages --requirements --python --template --store --mount --volume --secret --net --allow --deny --net-limit --env --label --ttl --idle-timeout --on-idle --hostname --user --key --idempotency-key' ;;
        ps) options+=' --gone --quiet --everybody --label --phase' ;;
        exec) options+=' --interactive --tty --detach --env --secret --workdir --user --timeout --output-limit' ;;
        shell) options+=' --env --secret --workdir --user' ;;
        cp) options+=' --recursive' ;;
        logs | events) options+=' --follow' ;;
        jobs) options+=' --all --quiet' ;;
        rm) options+=' --all --label' ;;
        stats) options+=' --watch' ;;
        net) options+=' --net --allow --deny --remove --net-limit' ;;
        token) options+=' --scope --expires' ;;
        volume) options+=' --size --many --share --everybody' ;;
        secret) options+=' --from-file --from-env --replace' ;;
        df) options+=' --everybody' ;;
        service) options+=' --box --memory --net --allow --deny --env --secret --timeout --packages --requirements --python --template' ;;
        grant) options+=' --box --expires --max-calls' ;;
        py) options+=' --code --timeout --memory --cpus --request-memory --request-cpus --packages --requirements --volume --secret --key --net --allow --deny --env --template --python --yes' ;;
        mcp) options+=' --allow --deny --net --box --tools --service' ;;
        repl) options+=' --yes' ;;
        setup) options='--python --upgrade --help' ;;
        kernel) options+=' -f --python --template --memory --cpus --pids --disk --env --no-mount' ;;
        kernelspec) options='--name --display-name --user --prefix --python --memory --cpus --home --yes --help' ;;
    esac
    if [[ ' config token secret volume service grant kernelspec ' == *" $command "* ]] && ((COMP_CWORD == 2)); then
        case $command in
            config) options=check ;;
            token) options='create list revoke' ;;
            secret) options='create list rm' ;;
            volume) options='create list inspect resize share rm' ;;
            service) options='create ls show call log restart rm' ;;
            grant) options='create ls rm' ;;
            *) options='install remove' ;;
        esac
        mapfile -t COMPREPLY < <(compgen -W "$options" -- "$cur")
    elif [[ $cur == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$options" -- "$cur")
    elif [[ $command == cp || $command == config || $command == py ]]; then
        [[ $command == cp ]] && mapfile -t COMPREPLY < <(compgen -S : -W "$(_carrel_boxes)" -- "$cur")
        compopt -o default -o nospace 2>/dev/null
    elif [[ ' exec shell jobs logs wait kill events forward pause resume stop start rm stats net repl ' == *" $command "* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$(_carrel_boxes)" -- "$cur")
    fi
}

_carrel() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} command=${COMP_WORDS[1]-} i word
    local run_options='--memory --pids --cpus --disk --timeout --output-limit --root --writable-root --no-proc --mount --volume --secret --env --env-file
        --pass-env --workdir --hostname --user --profile --net --allow --deny --key --net-limit --interactive --tty --json --report --trace --help'
    local with_value=' --memory --pids --cpus --disk --timeout --output-limit --root --mount --volume --secret --env --env-file --pass-env --workdir
        --hostname --user --profile --net --allow --deny --key --net-limit --report '
    COMPREPLY=()

    if ((COMP_CWORD == 1)); then
        mapfile -t COMPREPLY < <(compgen -W 'run plan doctor gc layer setup serve config create ps exec shell cp jobs logs wait kill events
            forward pause resume stop start rm stats net service grant token secret volume df py repl kernel kernelspec mcp help --version --help' -- "$cur")
        return
    fi
    case $command in
        doctor)
            mapfile -t COMPREPLY < <(compgen -W '--json --apparmor --help' -- "$cur")
            return ;;
        gc)
            mapfile -t COMPREPLY < <(compgen -W '--unused --json --help' -- "$cur")
            return ;;
        run | plan) ;;
        *)
            _carrel_client "$command" "$cur" "$prev"
            return ;;
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
        --net) mapfile -t COMPREPLY < <(compgen -W 'none public' -- "$cur") ;;
        --root) mapfile -t COMPREPLY < <(compgen -W host -- "$cur"; compgen -d -- "$cur") ;;
        --pass-env) mapfile -t COMPREPLY < <(compgen -e -- "$cur") ;;
        --mount | --env-file | --report) compopt -o default 2>/dev/null ;;
        --memory | --disk | --output-limit) mapfile -t COMPREPLY < <(compgen -W '64M 256M 512M 1G 4G' -- "$cur") ;;
        --timeout) mapfile -t COMPREPLY < <(compgen -W '10s 30s 1m 10m 1h' -- "$cur") ;;
        --pids | --cpus | --allow | --deny | --remove | --key | --net-limit | --env | --workdir | --hostname | --user) ;;
        *) mapfile -t COMPREPLY < <(compgen -W "$run_options" -- "$cur") ;;
    esac
}
complete -F _carrel carrel
