use super::*;

fn read_text(text: &str) -> (Vec<Target>, Vec<String>) {
    let (targets, complaints) = read(text, Path::new("targets.yaml"), Path::new("conf"));
    (
        targets,
        complaints.iter().map(ToString::to_string).collect(),
    )
}

#[test]
fn every_key_is_read() {
    let (targets, complaints) = read_text(
        "\
gpu1:  # the big one
  kind: ssh
  host: ana@gpu1.lab
  folder: ~/lathe things
  program: /opt/lathe/bin/lathe
  trainer: /opt/lathe/bin/lathe-trainer
  libtorch: /opt/torch/lib
  gpus: [0, 3]
  at_once: 2
  models: /data/models
  environment: {HF_HOME: /data/hf, PORT: 80}
  pass: [WANDB_API_KEY]
  ssh_config: ssh.conf
  connect_timeout: 3s
  compression: false
  listed: false
",
    );
    assert_eq!(complaints, Vec::<String>::new());
    let target = &targets[0];
    assert_eq!(target.host, "ana@gpu1.lab");
    assert_eq!(target.folder, "lathe things");
    assert_eq!(target.gpus, Gpus::These(vec![0, 3]));
    assert_eq!((target.at_once, target.is_compressed), (2, false));
    assert!(!target.is_listed && Target::host("other").is_listed);
    assert_eq!(target.environment["PORT"], "80");
    assert_eq!(target.pass, ["WANDB_API_KEY"]);
    assert_eq!(
        target.ssh_config.as_deref(),
        Some(Path::new("conf/ssh.conf"))
    );
    assert_eq!(target.connect_timeout, Some(Duration::from_secs(3)));
    assert_eq!(target.written, Some((PathBuf::from("targets.yaml"), 1)));
}

#[test]
fn what_is_wrong_is_told_with_its_line_and_the_other_targets_stay() {
    let (targets, complaints) = read_text(
        "good: {}\nbad:\n  kind: cloud\n  hots: x\n  gpus: many\n  program: -x\n  environment: {A B: c}\nalso: 7\n",
    );
    assert_eq!(targets.len(), 1);
    assert_eq!(targets[0].host, "good");
    assert_eq!(
        complaints,
        [
            "targets.yaml:3: bad.kind is cloud; expected local, ssh, slurm or ray",
            "targets.yaml:4: a target has no key hots; did you mean host?",
            "targets.yaml:5: bad.gpus is many; expected auto, as_is, none, a number of GPUs, or a list such as [0, 1]",
            "targets.yaml:6: bad.program is \"-x\"; expected a name without line breaks, not starting with `-`",
            "targets.yaml:7: `A B` is no name of a variable",
            "targets.yaml:8: also is no mapping; expected keys such as kind: ssh",
        ]
    );
    assert!(read_text("").1.is_empty());
    assert_eq!(read_text("- a\n").1.len(), 1);
    assert_eq!(read_text("a: [\n").1.len(), 1);
}

#[test]
fn a_time_no_longer_than_the_warning_before_its_end_is_refused_with_its_line() {
    let (targets, complaints) = read_text(
        "\
short:
  kind: slurm
  time: 2
shorter:
  kind: slurm
  warning: 300s
  time: 0:00:30
fits:
  kind: slurm
  time: 2
  warning: 119s
whole: {kind: slurm, time: unlimited, warning: 1h}
zero: {kind: slurm, time: 0}
",
    );
    assert_eq!(
        complaints,
        [
            "targets.yaml:3: short.time is 2 (120 s), and short.warning is 120 s, which is the default: a run would save and stop as \
                 soon as it starts; expected a time longer than the warning: raise time, or lower warning",
            "targets.yaml:7: shorter.time is 0:00:30 (60 s), and shorter.warning is 300 s: a run would save and stop as soon as it \
                 starts; expected a time longer than the warning: raise time, or lower warning",
        ]
    );
    let names: Vec<&str> = targets.iter().map(|target| target.name.as_str()).collect();
    assert_eq!(names, ["fits", "whole", "zero"]);
}

#[test]
fn a_cluster_is_read_with_what_its_jobs_ask_for() {
    let (targets, complaints) = read_text(
        "\
lab:
  kind: slurm
  host: login.lab
  partition: gpu,long
  account: nlp
  qos: high
  time: 2-12:00:00
  cpus: 8
  memory: 64G
  gpus: 2
  gpu_type: a100
  constraint: ib&nvme
  requeue: always
  warning: 300s
  at_once: 4
  sbatch: [--nice=100, \"--exclude=node[3-4]\"]
  before: [module load cuda/12.4]
here: {kind: slurm, time: 30}
head:
  kind: ray
  address: http://127.0.0.1:8265/
  token: OUR_TOKEN
  cpus: 2
  memory: 8G
  resources: {tpu: 4}
",
    );
    assert_eq!(complaints, Vec::<String>::new());
    let slurm = &targets[0].slurm;
    assert_eq!(targets[0].host, "login.lab");
    assert_eq!(slurm.partition.as_deref(), Some("gpu,long"));
    assert_eq!(slurm.time.as_deref(), Some("2-12:00:00"));
    assert_eq!(
        (slurm.requeue, slurm.warning_s, slurm.cpus),
        (Requeue::Always, 300, Some(8))
    );
    assert_eq!(slurm.options, ["--nice=100", "--exclude=node[3-4]"]);
    assert_eq!(slurm.before, ["module load cuda/12.4"]);
    assert_eq!(targets[0].gpus, Gpus::Free(2));
    assert!(targets[1].is_here() && targets[1].slurm.time.as_deref() == Some("30"));
    let ray = &targets[2].ray;
    assert_eq!(
        (ray.address.as_str(), ray.memory_bytes),
        ("http://127.0.0.1:8265", Some(8 << 30))
    );
    assert_eq!(
        (ray.resources["tpu"], targets[2].token.as_deref()),
        (4, Some("OUR_TOKEN"))
    );
    assert_eq!(targets[2].gpus, Gpus::None);
}

#[test]
fn what_a_scheduler_cannot_take_is_told_with_its_line() {
    let (_, complaints) = read_text(
        "\
a: {kind: ssh, partition: gpu}
b: {kind: slurm, time: tomorrow}
c: {kind: slurm, sbatch: [--array=1-3]}
d: {kind: slurm, partition: \"a b\"}
e: {kind: slurm, gpus: [0, 1]}
f: {kind: ray, pass: [WANDB_API_KEY]}
g: {kind: ray, token: s3cret-value}
h: {kind: ray, address: \"http://me:pw@h:1\"}
i: {kind: slurm, memory: lots}
j: {kind: slurm, sbatch: [-p gpu]}
k: {kind: slurm, requeue: sometimes}
",
    );
    assert_eq!(
        complaints,
        [
            "targets.yaml:1: a.partition has no meaning with kind: ssh",
            "targets.yaml:2: b.time is tomorrow; expected a time as sbatch takes it: minutes, 12:00:00, 2-12 or UNLIMITED",
            "targets.yaml:3: c.sbatch: --array is lathe's own; leave it out",
            "targets.yaml:4: d.partition is \"a b\"; expected one word without quotes",
            "targets.yaml:5: e.gpus is a list, and slurm chooses which GPUs a run gets; expected a number",
            "targets.yaml:6: f.pass has no meaning with kind: ray, which shows what a job was given to everybody who reaches its \
                 dashboard; set the variables where Ray's nodes are started, or write under environment what may be seen",
            "targets.yaml:7: g.token is no name of a variable; expected one such as RAY_AUTH_TOKEN, which holds the token where \
                 lathe is started",
            "targets.yaml:8: h.address is \"http://me:pw@h:1\"; expected an address such as http://127.0.0.1:8265",
            "targets.yaml:9: i.memory is lots; expected an amount such as 64G",
            "targets.yaml:10: j.sbatch is \"-p gpu\"; expected an option in full, such as --nice=100, without spaces and quotes",
            "targets.yaml:11: k.requeue is sometimes; expected preempted, always or never",
        ]
    );
}
