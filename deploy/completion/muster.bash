# Made from the program's own declarations: cmake --build BUILD --target write-pages

# Of the commands so far, $1, those that may follow.
_muster_commands() {
  case $1 in
  'muster') echo 'run status jobs groups hang flight top doctor token end trace version upgrade shutdown env mesh plan checkpoint certs config' ;;
  'muster plan') echo 'costs halo explain' ;;
  'muster checkpoint') echo 'inspect verify export import' ;;
  'muster certs') echo 'init node check' ;;
  'muster config') echo 'check show explain schema' ;;
  esac
}

# The options of the command $1.
_muster_options() {
  case $1 in
  'muster') echo '-h --help --version' ;;
  'muster run') echo '-h --help --endpoint --timeout -n --ranks --mesh --flatten --config --job --keep --private --trace --elastic --check --no-prefix --grace --hosts --launcher --env' ;;
  'muster status') echo '-h --help --json --endpoint --timeout' ;;
  'muster jobs') echo '-h --help --json --endpoint --timeout' ;;
  'muster groups') echo '-h --help --json --endpoint --timeout --job' ;;
  'muster hang') echo '-h --help --json --endpoint --timeout --job' ;;
  'muster flight') echo '-h --help --json --endpoint --timeout --job -o --output --pickles --last' ;;
  'muster top') echo '-h --help --json --endpoint --timeout --job --interval --once' ;;
  'muster doctor') echo '-h --help --json --endpoint --timeout' ;;
  'muster token') echo '-h --help --json --endpoint --timeout --job --rank' ;;
  'muster end') echo '-h --help --json --endpoint --timeout --of --job' ;;
  'muster trace') echo '-h --help --json --endpoint --timeout --job -o --output --seconds --end' ;;
  'muster version') echo '-h --help --json --endpoint --timeout' ;;
  'muster upgrade') echo '-h --help --json --endpoint --timeout --program' ;;
  'muster shutdown') echo '-h --help --json --endpoint --timeout --now' ;;
  'muster env') echo '-h --help --json' ;;
  'muster mesh') echo '-h --help --json --world --mesh --flatten --config --job --manifest' ;;
  'muster plan') echo '-h --help' ;;
  'muster plan costs') echo '-h --help --json' ;;
  'muster plan halo') echo '-h --help --json --shape --cut --kernel --stride --dilation --pad --pads --transposed --by-dims --dtype --rank' ;;
  'muster plan explain') echo '-h --help --json --endpoint --timeout --ranks --dtype --count --world --cores --shared --nodes --config' ;;
  'muster checkpoint') echo '-h --help' ;;
  'muster checkpoint inspect') echo '-h --help --json' ;;
  'muster checkpoint verify') echo '-h --help --json' ;;
  'muster checkpoint export') echo '-h --help --json -o --output --only --exclude' ;;
  'muster checkpoint import') echo '-h --help --json --name --step --only --exclude' ;;
  'muster certs') echo '-h --help' ;;
  'muster certs init') echo '-h --help --json --folder --cluster --days' ;;
  'muster certs node') echo '-h --help --json --folder --days' ;;
  'muster certs check') echo '-h --help --json --folder' ;;
  'muster config') echo '-h --help' ;;
  'muster config check') echo '-h --help --json' ;;
  'muster config show') echo '-h --help --json --config --set' ;;
  'muster config explain') echo '-h --help --json' ;;
  'muster config schema') echo '-h --help' ;;
  'musterd') echo '-h --help --config --directory --socket --set --engine --check-config --print-config --transient --version' ;;
  esac
}

# What the value of an option is, or a word that is none, counted from 0: $1 is command and option.
_muster_kind() {
  case $1 in
  'muster run --endpoint') echo 'FILE' ;;
  'muster run --timeout') echo 'NONE' ;;
  'muster run -n') echo 'NONE' ;;
  'muster run --ranks') echo 'NONE' ;;
  'muster run --mesh') echo 'NONE' ;;
  'muster run --flatten') echo 'NONE' ;;
  'muster run --config') echo 'FILE' ;;
  'muster run --job') echo 'JOB' ;;
  'muster run --trace') echo 'FILE' ;;
  'muster run --grace') echo 'NONE' ;;
  'muster run --hosts') echo 'NONE' ;;
  'muster run --launcher') echo 'NONE' ;;
  'muster run --env') echo 'NONE' ;;
  'muster status --endpoint') echo 'FILE' ;;
  'muster status --timeout') echo 'NONE' ;;
  'muster jobs --endpoint') echo 'FILE' ;;
  'muster jobs --timeout') echo 'NONE' ;;
  'muster groups --endpoint') echo 'FILE' ;;
  'muster groups --timeout') echo 'NONE' ;;
  'muster groups --job') echo 'JOB' ;;
  'muster hang --endpoint') echo 'FILE' ;;
  'muster hang --timeout') echo 'NONE' ;;
  'muster hang --job') echo 'JOB' ;;
  'muster flight --endpoint') echo 'FILE' ;;
  'muster flight --timeout') echo 'NONE' ;;
  'muster flight --job') echo 'JOB' ;;
  'muster flight -o') echo 'FILE' ;;
  'muster flight --output') echo 'FILE' ;;
  'muster flight --pickles') echo 'FOLDER' ;;
  'muster flight --last') echo 'NONE' ;;
  'muster top --endpoint') echo 'FILE' ;;
  'muster top --timeout') echo 'NONE' ;;
  'muster top --job') echo 'JOB' ;;
  'muster top --interval') echo 'NONE' ;;
  'muster doctor --endpoint') echo 'FILE' ;;
  'muster doctor --timeout') echo 'NONE' ;;
  'muster token --endpoint') echo 'FILE' ;;
  'muster token --timeout') echo 'NONE' ;;
  'muster token --job') echo 'JOB' ;;
  'muster token --rank') echo 'NONE' ;;
  'muster end --endpoint') echo 'FILE' ;;
  'muster end --timeout') echo 'NONE' ;;
  'muster end --of') echo 'NONE' ;;
  'muster end --job') echo 'JOB' ;;
  'muster trace --endpoint') echo 'FILE' ;;
  'muster trace --timeout') echo 'NONE' ;;
  'muster trace --job') echo 'JOB' ;;
  'muster trace -o') echo 'FILE' ;;
  'muster trace --output') echo 'FILE' ;;
  'muster trace --seconds') echo 'NONE' ;;
  'muster version --endpoint') echo 'FILE' ;;
  'muster version --timeout') echo 'NONE' ;;
  'muster upgrade --endpoint') echo 'FILE' ;;
  'muster upgrade --timeout') echo 'NONE' ;;
  'muster upgrade --program') echo 'FILE' ;;
  'muster shutdown --endpoint') echo 'FILE' ;;
  'muster shutdown --timeout') echo 'NONE' ;;
  'muster mesh --world') echo 'NONE' ;;
  'muster mesh --mesh') echo 'NONE' ;;
  'muster mesh --flatten') echo 'NONE' ;;
  'muster mesh --config') echo 'FILE' ;;
  'muster mesh --job') echo 'NONE' ;;
  'muster plan halo --shape') echo 'NONE' ;;
  'muster plan halo --cut') echo 'NONE' ;;
  'muster plan halo --kernel') echo 'NONE' ;;
  'muster plan halo --stride') echo 'NONE' ;;
  'muster plan halo --dilation') echo 'NONE' ;;
  'muster plan halo --pad') echo 'NONE' ;;
  'muster plan halo --pads') echo 'NONE' ;;
  'muster plan halo --dtype') echo 'DTYPE' ;;
  'muster plan halo --rank') echo 'NONE' ;;
  'muster plan explain --endpoint') echo 'FILE' ;;
  'muster plan explain --timeout') echo 'NONE' ;;
  'muster plan explain 0') echo 'OP' ;;
  'muster plan explain --ranks') echo 'NONE' ;;
  'muster plan explain --dtype') echo 'DTYPE' ;;
  'muster plan explain --count') echo 'NONE' ;;
  'muster plan explain --world') echo 'NONE' ;;
  'muster plan explain --cores') echo 'NONE' ;;
  'muster plan explain --nodes') echo 'NONE' ;;
  'muster plan explain --config') echo 'FILE' ;;
  'muster checkpoint inspect 0') echo 'FOLDER' ;;
  'muster checkpoint verify 0') echo 'FOLDER' ;;
  'muster checkpoint export 0') echo 'FOLDER' ;;
  'muster checkpoint export -o') echo 'FILE' ;;
  'muster checkpoint export --output') echo 'FILE' ;;
  'muster checkpoint export --only') echo 'NONE' ;;
  'muster checkpoint export --exclude') echo 'NONE' ;;
  'muster checkpoint import '[0-9]*) echo 'FILE' ;;
  'muster checkpoint import --name') echo 'NONE' ;;
  'muster checkpoint import --step') echo 'NONE' ;;
  'muster checkpoint import --only') echo 'NONE' ;;
  'muster checkpoint import --exclude') echo 'NONE' ;;
  'muster certs init --folder') echo 'FOLDER' ;;
  'muster certs init --cluster') echo 'NONE' ;;
  'muster certs init --days') echo 'NONE' ;;
  'muster certs node --folder') echo 'FOLDER' ;;
  'muster certs node --days') echo 'NONE' ;;
  'muster certs node '[0-9]*) echo 'NONE' ;;
  'muster certs check --folder') echo 'FOLDER' ;;
  'muster certs check '[0-9]*) echo 'NONE' ;;
  'muster config check '[0-9]*) echo 'FILE' ;;
  'muster config show --config') echo 'FILE' ;;
  'muster config show --set') echo 'KEY=VALUE' ;;
  'muster config explain 0') echo 'KEY' ;;
  'muster config schema 0') echo 'musterd|cluster' ;;
  'musterd --config') echo 'FILE' ;;
  'musterd --directory') echo 'FILE' ;;
  'musterd --socket') echo 'FILE' ;;
  'musterd --set') echo 'KEY=VALUE' ;;
  'musterd --engine') echo 'FILE' ;;
  esac
}

# All values of kind $1.
_muster_words() {
  case $1 in
  'DTYPE') echo 'f32 bf16 f16 f64 i32 i64 u8 i8 f8_e4m3 f8_e5m2' ;;
  'KEY') echo 'node node.name node.runtime_directory node.socket_path node.directory_mode node.group node.engine_user node.program_folders node.workers node.cores peers peers.certificates peers.secret_file peers.plaintext log log.level log.format log.reports_directory limits limits.jobs_max limits.jobs_per_user_max limits.sessions_max limits.sessions_per_user_max limits.ranks_per_job_max limits.buffers_per_rank_max limits.plans_per_rank_max limits.starts_per_lane_max limits.groups_made_max limits.memory_max limits.memory_per_user_max limits.arena_per_rank_max limits.arena_segment limits.made_job_linger liveness liveness.idle_spin liveness.drain_timeout costs costs.meeting costs.turn costs.cached_rate costs.memory_rate defaults defaults.deadline defaults.digests jobs_from auto_create_jobs cluster cluster.name cluster.port cluster.network cluster.link cluster.link.trip cluster.link.rate cluster.interfaces cluster.interfaces[] cluster.tie_breaker nodes nodes[] nodes[].host nodes[].address nodes[].interfaces nodes[].interfaces[] nodes[].devices nodes[].devices.kind nodes[].devices.count jobs jobs[] jobs[].name jobs[].ranks jobs[].claim jobs[].mesh jobs[].mesh.dims jobs[].mesh.dims.pp jobs[].mesh.dims.dp_replicate jobs[].mesh.dims.dp_shard jobs[].mesh.dims.cp jobs[].mesh.dims.domain jobs[].mesh.dims.tp jobs[].mesh.dims.ep jobs[].mesh.flatten jobs[].mesh.flatten.* jobs[].mesh.flatten.*[] jobs[].lanes jobs[].lanes.deadline jobs[].digests jobs[].reproducible' ;;
  'KEY=VALUE') echo 'node.name= node.runtime_directory= node.socket_path= node.directory_mode= node.group= node.engine_user= node.program_folders= node.workers= node.cores= peers.certificates= peers.secret_file= peers.plaintext= log.level= log.format= log.reports_directory= limits.jobs_max= limits.jobs_per_user_max= limits.sessions_max= limits.sessions_per_user_max= limits.ranks_per_job_max= limits.buffers_per_rank_max= limits.plans_per_rank_max= limits.starts_per_lane_max= limits.groups_made_max= limits.memory_max= limits.memory_per_user_max= limits.arena_per_rank_max= limits.arena_segment= limits.made_job_linger= liveness.idle_spin= liveness.drain_timeout= costs.meeting= costs.turn= costs.cached_rate= costs.memory_rate= defaults.deadline= defaults.digests= jobs_from= auto_create_jobs=' ;;
  'OP') echo 'all_reduce all_gather reduce_scatter broadcast barrier send recv reduce gather scatter all_to_all exchange' ;;
  'musterd|cluster') echo 'musterd cluster' ;;
  esac
}

_muster() {
  local cur=${COMP_WORDS[COMP_CWORD]} path=${COMP_WORDS[0]##*/} option= word positional=0 program= i
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; i++)); do
    word=${COMP_WORDS[i]}
    if [[ -n $option ]]; then
      [[ $word == = ]] || option=
    elif [[ $word == -- && $path == 'muster run' ]]; then
      program=$((i + 1))
      break
    elif [[ $word == -* ]]; then
      [[ -z $(_muster_kind "$path $word") ]] || option=$word
    elif [[ " $(_muster_commands "$path") " == *" $word "* ]]; then
      path+=" $word"
    elif [[ $path == 'muster run' ]]; then
      program=$i
      break
    else
      positional=$((positional + 1))
    fi
  done
  if [[ -n $program ]]; then
    _muster_program "$program"
    return
  fi
  [[ $cur != = ]] || cur=
  if [[ -n $option ]]; then
    _muster_values "$(_muster_kind "$path $option")"
  elif [[ $cur == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$(_muster_options "$path")" -- "$cur")
  elif [[ -n $(_muster_commands "$path") ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$(_muster_commands "$path")" -- "$cur")
  else
    _muster_values "$(_muster_kind "$path $positional")"
  fi
}

# Of the program behind `muster run`, whose first word is number $1, and of its arguments.
_muster_program() {
  compopt -o filenames 2>/dev/null
  if [[ $COMP_CWORD -gt $1 ]]; then
    mapfile -t COMPREPLY < <(compgen -f -- "$cur")
  else
    mapfile -t COMPREPLY < <(compgen -A command -A file -- "$cur")
  fi
}

# Into COMPREPLY: the values of kind $1 that begin with $cur.
_muster_values() {
  case $1 in
  FILE)
    compopt -o filenames 2>/dev/null
    mapfile -t COMPREPLY < <(compgen -f -- "$cur")
    ;;
  FOLDER)
    compopt -o filenames 2>/dev/null
    mapfile -t COMPREPLY < <(compgen -d -- "$cur")
    ;;
  JOB)
    mapfile -t COMPREPLY < <(compgen -W "$("${COMP_WORDS[0]}" jobs --json --timeout 0.5 2>/dev/null | grep -o '"name":"[^"]*"' | cut -d '"' -f 4)" -- "$cur")
    ;;
  *)
    [[ $1 != *=* ]] || compopt -o nospace 2>/dev/null
    mapfile -t COMPREPLY < <(compgen -W "$(_muster_words "$1")" -- "$cur")
    ;;
  esac
}

complete -F _muster muster musterd
