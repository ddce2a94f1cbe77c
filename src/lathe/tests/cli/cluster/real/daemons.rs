//! munged, slurmctld and slurmd of a test's own, in a folder of its own; nodes of their own where it wants several.
//!
//! A node is a network, host name, mount and process namespace of its own with a slurmd as its first process, linked to the others by a
//! bridge; the disk is shared, as a cluster's is. Killing that process kills everything on the node, as a failing machine does.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use super::super::queue::Cluster;
use crate::fake_trainer::wait_until;

/// Its daemons end with it.
pub struct Slurm {
    pub cluster: Cluster,
    net: Option<Net>,
    nodes: Vec<Node>,
}

/// The bridge that links the nodes to each other and to this machine.
struct Net {
    name: String,
    subnet: String,
}

struct Node {
    name: String,
    /// Of its namespace.
    net: String,
    /// Our end of its link.
    link: String,
    /// Its first process, whose end is the node's.
    process: Child,
}

pub fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

fn skipped() -> bool {
    if std::env::var_os("LATHE_CLUSTER_TEST").is_none() {
        eprintln!("skipped: a real Slurm is started by `just cluster-test` alone");
        return true;
    }
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: slurmd wants root here");
        return true;
    }
    for program in [
        "/usr/sbin/slurmctld",
        "/usr/sbin/slurmd",
        "/usr/sbin/munged",
        "/usr/bin/sbatch",
    ] {
        if !Path::new(program).is_file() {
            eprintln!("skipped: there is no {program} here (apt-get install slurm-wlm munge)");
            return true;
        }
    }
    false
}

fn ip(arguments: &str) -> bool {
    Command::new("ip")
        .args(arguments.split_ascii_whitespace())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

impl Net {
    fn new() -> Option<Self> {
        // Tests of one process, or of many, side by side.
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = std::process::id() * 4 + MADE.fetch_add(1, Ordering::Relaxed) % 4;
        let net = Self {
            name: format!("lc{number}"),
            subnet: format!("10.{}.{}", 28 + (number >> 8) % 100, number % 256),
        };
        let (name, subnet) = (&net.name, &net.subnet);
        let is_made = ip(&format!("link add {name} type bridge"))
            && ip(&format!("addr add {subnet}.1/24 dev {name}"))
            && ip(&format!("link set {name} up"));
        if !is_made {
            eprintln!("skipped: no right to link nodes here (root, CAP_NET_ADMIN), or no `ip`");
            return None;
        }
        Some(net)
    }

    fn address(&self, index: usize) -> String {
        format!("{}.{}", self.subnet, index + 10)
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        ip(&format!("link del {}", self.name));
    }
}

impl Node {
    fn start(cluster: &Cluster, net: &Net, index: usize) -> Self {
        let name = format!("node{index}");
        let (space, ours, theirs) = (
            format!("{}n{index}", net.name),
            format!("{}v{index}", net.name),
            format!("{}w{index}", net.name),
        );
        for arguments in [
            format!("netns add {space}"),
            format!("link add {ours} type veth peer name {theirs}"),
            format!("link set {ours} master {}", net.name),
            format!("link set {ours} up"),
            format!("link set {theirs} netns {space}"),
            format!("-n {space} addr add {}/24 dev {theirs}", net.address(index)),
            format!("-n {space} link set {theirs} up"),
            format!("-n {space} link set lo up"),
        ] {
            assert!(ip(&arguments), "ip {arguments}");
        }
        // Not `ip netns exec`, whose /sys has no control groups.
        let process = Command::new("nsenter")
            .arg(format!("--net=/var/run/netns/{space}"))
            .args(["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"])
            .args(["--uts", "--mount", "sh", "-c"])
            .arg(format!(
                "hostname {name} && exec /usr/sbin/slurmd -D -N {name}"
            ))
            .env("SLURM_CONF", cluster.bench.path("slurm.conf"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self {
            name,
            net: space,
            link: ours,
            process,
        }
    }

    fn kill(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill();
        ip(&format!("netns del {}", self.net));
        ip(&format!("link del {}", self.link));
    }
}

impl Slurm {
    /// This machine is the one node. None: skipped, and said why.
    pub fn start() -> Option<Self> {
        if skipped() {
            return None;
        }
        Some(Self::at(None, 1))
    }

    /// `node1` and `node2`, neither of which is this machine.
    pub fn with_two_nodes() -> Option<Self> {
        if skipped() {
            return None;
        }
        Some(Self::at(Some(Net::new()?), 2))
    }

    fn at(net: Option<Net>, count: usize) -> Self {
        let mut cluster = Cluster::bare();
        let path = |name: &str| cluster.bench.path(name).display().to_string();
        for folder in ["munge", "state", "spool"] {
            fs::create_dir(path(folder)).unwrap();
        }
        let mut key = vec![0; 1024];
        rustix::rand::getrandom(&mut key, rustix::rand::GetRandomFlags::empty()).unwrap();
        fs::write(path("munge/key"), key).unwrap();
        for (name, mode) in [("munge/key", "400"), ("munge", "711"), ("", "711")] {
            assert!(
                Command::new("chmod")
                    .arg(mode)
                    .arg(path(name))
                    .status()
                    .unwrap()
                    .success()
            );
        }
        let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        let host = host.trim().split('.').next().unwrap().to_owned();
        let folder = path("");
        let folder = folder.trim_end_matches('/');
        let here = net
            .as_ref()
            .map_or_else(|| "127.0.0.1".to_owned(), |net| format!("{}.1", net.subnet));
        let nodes: Vec<String> = (1..=count)
            .map(|index| {
                fs::create_dir(path(&format!("spool/node{index}"))).unwrap();
                let (hostname, address) = match &net {
                    None => (host.clone(), here.clone()),
                    Some(net) => (format!("node{index}"), net.address(index)),
                };
                format!(
                    "NodeName=node{index} NodeHostname={hostname} NodeAddr={address} CPUs=2 RealMemory=2000 Gres=gpu:2 State=UNKNOWN\n"
                )
            })
            .collect();
        let nodes = nodes.concat();
        let conf = format!(
            "ClusterName=lathe\nSlurmctldHost={host}({here})\nSlurmctldPort={}\nSlurmdPort={}\nSlurmUser=root\nSlurmdUser=root\n\
             AuthType=auth/munge\nAuthInfo=socket={folder}/munge/socket\nCredType=cred/munge\nStateSaveLocation={folder}/state\n\
             SlurmdSpoolDir={folder}/spool/%n\nSlurmctldPidFile={folder}/slurmctld.pid\nSlurmdPidFile={folder}/%n.pid\n\
             SlurmctldLogFile={folder}/slurmctld.log\nSlurmdLogFile={folder}/%n.log\nProctrackType=proctrack/linuxproc\n\
             TaskPlugin=task/none\nJobAcctGatherType=jobacct_gather/none\nAccountingStorageType=accounting_storage/none\n\
             SwitchType=switch/none\nMpiDefault=none\nReturnToService=2\nSelectType=select/cons_tres\nSelectTypeParameters=CR_Core\n\
             GresTypes=gpu\nPreemptType=preempt/partition_prio\nPreemptMode=REQUEUE\nKillWait=10\nSlurmdTimeout=9\n\
             SchedulerParameters=sched_interval=1,bf_interval=1,sched_min_interval=0\n{nodes}\
             PartitionName=low Nodes=node[1-{count}] Default=YES PriorityTier=1 MaxTime=1:00:00 DefaultTime=10:00 GraceTime=0 State=UP\n\
             PartitionName=high Nodes=node[1-{count}] PriorityTier=10 PreemptMode=off MaxTime=INFINITE State=UP\n",
            free_port(),
            free_port()
        );
        fs::write(path("slurm.conf"), conf).unwrap();
        fs::write(
            path("gres.conf"),
            format!("NodeName=node[1-{count}] Name=gpu File=/dev/null,/dev/zero\n"),
        )
        .unwrap();
        let munge = |name: &str| format!("--{name}-file={folder}/munge/{name}");
        let munged = [
            "--force".to_owned(),
            format!("--socket={folder}/munge/socket"),
            munge("key"),
            munge("pid"),
            munge("log"),
            munge("seed"),
        ];
        let conf = path("slurm.conf");
        cluster.variables.push(("SLURM_CONF".to_owned(), conf));
        cluster.write_targets("lab", "  kind: slurm\n  time: 10:00\n  gpus: none\n");
        let mut slurm = Self {
            cluster,
            net,
            nodes: Vec::new(),
        };
        slurm.daemon("/usr/sbin/munged", &munged.each_ref().map(String::as_str));
        slurm.daemon("/usr/sbin/slurmctld", &["-c"]);
        match &slurm.net {
            None => slurm.daemon("/usr/sbin/slurmd", &["-N", "node1"]),
            Some(net) => {
                slurm.nodes = (1..=count)
                    .map(|index| Node::start(&slurm.cluster, net, index))
                    .collect();
            }
        }
        wait_until("every node is idle", || {
            let states = slurm.slurm("sinfo", &["-h", "-N", "-p", "low", "-o", "%t"]);
            states
                .lines()
                .filter(|state| state.trim() == "idle")
                .count()
                == count
        });
        slurm
    }

    /// As a machine does whose power is cut.
    pub fn kill_node(&mut self, name: &str) {
        let node = self.nodes.iter_mut().find(|node| node.name == name);
        node.unwrap().kill();
    }

    fn daemon(&self, program: &str, arguments: &[&str]) {
        let status = Command::new(program)
            .args(arguments)
            .env("SLURM_CONF", self.cluster.bench.path("slurm.conf"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .status()
            .unwrap();
        assert!(status.success(), "{program}: {status}");
    }

    /// What one of Slurm's commands prints.
    pub fn slurm(&self, program: &str, arguments: &[&str]) -> String {
        let output = Command::new(program)
            .args(arguments)
            .env("SLURM_CONF", self.cluster.bench.path("slurm.conf"))
            .current_dir(self.cluster.bench.path(""))
            .output()
            .unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    pub fn job(&self) -> String {
        let text = fs::read(self.cluster.run_there().join("scheduled.json")).unwrap();
        let value: serde_json::Value = serde_json::from_slice(&text).unwrap();
        value["job"].as_str().unwrap().to_owned()
    }

    /// One field of what Slurm says of a job.
    pub fn shown(&self, job: &str, field: &str) -> String {
        let shown = self.slurm("scontrol", &["-o", "show", "job", job]);
        let value = shown
            .split_whitespace()
            .find_map(|word| word.strip_prefix(field)?.strip_prefix('='));
        value.unwrap_or("").to_owned()
    }

    pub fn job_state(&self, job: &str) -> String {
        self.shown(job, "JobState")
    }

    /// Slurm waits two minutes before it starts a job again.
    pub fn start_now(&self, job: &str) {
        let job = format!("JobId={job}");
        self.slurm("scontrol", &["update", &job, "StartTime=now"]);
    }
}

impl Drop for Slurm {
    fn drop(&mut self) {
        self.slurm("scancel", &["--user=root"]);
        self.nodes.clear();
        for file in ["node1.pid", "slurmctld.pid", "munge/pid"] {
            if self.net.is_some() && file == "node1.pid" {
                // Of a namespace that is gone: here the number is another's.
                continue;
            }
            if let Ok(pid) = fs::read_to_string(self.cluster.bench.path(file)) {
                let pid = pid.trim();
                let _ = Command::new("kill").arg(pid).status();
                wait_until("a daemon is gone", || {
                    !Path::new("/proc").join(pid).exists() || is_zombie(pid)
                });
            }
        }
    }
}

/// Nobody has collected it yet, and it does nothing more.
fn is_zombie(pid: &str) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| {
        stat.rsplit_once(')')
            .is_some_and(|(_, rest)| rest.starts_with(" Z"))
    })
}
