//! An sshd of the test's own, in a network namespace where its link is to be cut, and lathe's folder behind it.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use super::net::{Net, quiet};
use crate::fake_trainer::{Act, ended, started, step, wait_until};
use crate::harness::{Bench, Ran, finished};
use crate::screen::Screen;
use runlog::event::RunStatus;

pub struct Far {
    pub bench: Bench,
    sshd: Option<Child>,
    net: Option<Net>,
    address: String,
    port: u16,
}

fn sshd_program() -> Option<&'static str> {
    let found = ["/usr/sbin/sshd", "/usr/local/sbin/sshd"]
        .into_iter()
        .find(|path| Path::new(path).is_file());
    if found.is_none() {
        eprintln!("skipped: there is no sshd here (apt-get install openssh-server)");
    }
    found
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

impl Far {
    /// None: skipped, and said why.
    pub fn new() -> Option<Self> {
        sshd_program()?;
        Some(Self::at(Bench::new(), None))
    }

    /// With a link that can be cut.
    pub fn with_link() -> Option<Self> {
        sshd_program()?;
        Some(Self::at(Bench::new(), Some(Net::new()?)))
    }

    /// With a link that is slow, loses packets, and can be cut.
    pub fn with_slow_link() -> Option<Self> {
        sshd_program()?;
        let bench = Bench::new();
        let net = Net::slow(&bench.path("line.json"))?;
        Some(Self::at(bench, Some(net)))
    }

    fn at(bench: Bench, net: Option<Net>) -> Self {
        let local = || "127.0.0.1".to_owned();
        let address = net.as_ref().map_or_else(local, |net| net.address.clone());
        for folder in ["far", "bin", "xdg"] {
            fs::create_dir(bench.path(folder)).unwrap();
        }
        for (key, comment) in [("hostkey", "host"), ("key", "user"), ("otherkey", "other")] {
            let path = bench.path(key);
            let path = path.to_str().unwrap();
            assert!(quiet(
                "ssh-keygen",
                &["-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", path]
            ));
        }
        fs::copy(bench.path("key.pub"), bench.path("authorized")).unwrap();
        let mut far = Self {
            bench,
            sshd: None,
            net,
            address,
            port: free_port(),
        };
        far.knows("hostkey.pub");
        far.write_ssh_config();
        far.write_targets("");
        far.bench.program(
            "far-lathe",
            &format!(
                "export LATHE_TRAINER='{}' PATH='{}':$PATH\nunset LATHE_RUNS\nexec '{}' \"$@\"",
                far.bench.path("trainer").display(),
                far.bench.path("bin").display(),
                env!("CARGO_BIN_EXE_lathe")
            ),
        );
        far.start_sshd("");
        far
    }

    /// Which key stands in the known hosts.
    pub fn knows(&self, public: &str) {
        let key = fs::read_to_string(self.bench.path(public)).unwrap();
        let line = format!("[{}]:{} {key}", self.address, self.port);
        fs::write(self.bench.path("known"), line).unwrap();
    }

    fn write_ssh_config(&self) {
        let path = |name: &str| self.bench.path(name).display().to_string();
        let user =
            String::from_utf8(Command::new("id").arg("-un").output().unwrap().stdout).unwrap();
        let text = format!(
            "Host loop\n  HostName {}\n  Port {}\n  User {}\n  IdentityFile {}\n  IdentitiesOnly yes\n  UserKnownHostsFile {}\n  StrictHostKeyChecking yes\n",
            self.address,
            self.port,
            user.trim(),
            path("key"),
            path("known"),
        );
        fs::write(self.bench.path("ssh_config"), text).unwrap();
    }

    /// `more`: further keys of the target, each on a line of its own with two spaces before it.
    pub fn write_targets(&self, more: &str) {
        let path = |name: &str| self.bench.path(name).display().to_string();
        let text = format!(
            "loop:\n  kind: ssh\n  folder: {}\n  program: {}\n  connect_timeout: 5s\n{more}",
            path("far"),
            path("far-lathe")
        );
        fs::write(self.bench.path("targets.yaml"), text).unwrap();
    }

    /// `more`: further lines of its configuration, which come first and so win.
    pub fn start_sshd(&mut self, more: &str) {
        let path = |name: &str| self.bench.path(name).display().to_string();
        let text = format!(
            "{more}\nPort {}\nListenAddress {}\nHostKey {}\nAuthorizedKeysFile {}\nPidFile none\nUsePAM no\nStrictModes no\n\
             PasswordAuthentication no\nKbdInteractiveAuthentication no\n",
            self.port,
            self.address,
            path("hostkey"),
            path("authorized"),
        );
        fs::write(self.bench.path("sshd_config"), text).unwrap();
        // Where root separates privileges; made by the system's own service otherwise.
        let _ = fs::create_dir_all("/run/sshd");
        let mut command = match &self.net {
            Some(net) => {
                let mut command = Command::new("ip");
                command.args(["netns", "exec", &net.name, sshd_program().unwrap()]);
                command
            }
            None => Command::new(sshd_program().unwrap()),
        };
        let log = path("sshd.log");
        command.args(["-D", "-f", &path("sshd_config"), "-E", &log]);
        // What it inherits, its sessions would hold open.
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        self.sshd = Some(command.spawn().unwrap());
        let address = format!("{}:{}", self.address, self.port);
        wait_until("sshd listens", || {
            std::net::TcpStream::connect(&address).is_ok()
        });
    }

    /// Ends sshd with every session of it, as a reboot of the network does.
    pub fn stop_sshd(&mut self) {
        let Some(mut sshd) = self.sshd.take() else {
            return;
        };
        let mut all = vec![sshd.id()];
        // Sessions are children of children.
        for _ in 0..3 {
            let more: Vec<u32> = processes()
                .into_iter()
                .filter(|(pid, parent, name)| {
                    all.contains(parent) && !all.contains(pid) && name == "sshd"
                })
                .map(|(pid, ..)| pid)
                .collect();
            all.extend(more);
        }
        for pid in all {
            kill(pid, "KILL");
        }
        let _ = sshd.wait();
    }

    pub fn cut(&self) {
        self.net.as_ref().expect("made with a link").cut();
    }

    pub fn heal(&self) {
        self.net.as_ref().expect("made with a link").heal();
    }

    pub fn lathe(&self, arguments: &[&str]) -> Command {
        let mut command = self.bench.lathe(arguments);
        command.envs(self.environment());
        command
    }

    /// How `lathe` finds the other machine.
    pub fn environment(&self) -> [(&'static str, PathBuf); 4] {
        [
            ("LATHE_SSH_CONFIG", self.bench.path("ssh_config")),
            ("LATHE_TARGETS", self.bench.path("none.yaml")),
            ("XDG_RUNTIME_DIR", self.bench.path("xdg")),
            ("HOME", self.bench.path("")),
        ]
    }

    /// The workbench in a terminal of 120 columns, without colour.
    pub fn screen(&self, arguments: &[&str]) -> Screen {
        let environment = self.environment();
        let mut environment: Vec<(&str, &str)> = environment
            .iter()
            .map(|(name, path)| (*name, path.to_str().unwrap()))
            .collect();
        environment.push(("NO_COLOR", "1"));
        Screen::start(&self.bench, arguments, 120, &environment)
    }

    pub fn run(&self, arguments: &[&str]) -> Ran {
        finished(self.lathe(arguments).output().unwrap())
    }

    /// The run's directory there.
    pub fn run_there(&self) -> PathBuf {
        self.bench
            .path("far/runs")
            .join(self.bench.run_dir().file_name().unwrap())
    }

    pub fn status(&self) -> Option<Value> {
        let text = fs::read(self.bench.run_dir().join("mirror.json")).ok()?;
        serde_json::from_slice(&text).ok()
    }

    pub fn link_is(&self, word: &str) -> bool {
        self.status()
            .is_some_and(|status| status["link"]["is"] == word)
    }

    /// Both sides hold the same bytes.
    pub fn assert_same(&self) {
        for name in ["events.jsonl", "log.txt"] {
            let here = fs::read(self.bench.run_dir().join(name)).unwrap();
            let there = fs::read(self.run_there().join(name)).unwrap();
            assert!(
                here == there,
                "{name}: {} bytes here, {} there",
                here.len(),
                there.len()
            );
        }
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        if let Some(net) = &self.net {
            net.heal();
        }
        // What a failed test left running there.
        for run in fs::read_dir(self.bench.path("far/runs"))
            .into_iter()
            .flatten()
            .flatten()
        {
            let text = fs::read(run.path().join("supervisor.json")).unwrap_or_default();
            let known: Value = serde_json::from_slice(&text).unwrap_or_default();
            if run.path().join("exit.json").exists() {
                continue;
            }
            for process in [&known["process"], &known["trainer"]] {
                if let Some(pid) = process["pid"].as_u64() {
                    kill(pid as u32, "KILL");
                }
            }
        }
        self.stop_sshd();
        // The master connection, which else waits two minutes for somebody to use it.
        let folder = self.bench.path("xdg");
        let folder = folder.to_str().unwrap();
        for (pid, _, name) in processes() {
            let is_ours = name.starts_with("ssh")
                && fs::read(format!("/proc/{pid}/cmdline"))
                    .is_ok_and(|line| String::from_utf8_lossy(&line).contains(folder));
            if is_ours {
                kill(pid, "TERM");
            }
        }
    }
}

pub fn kill(pid: u32, signal: &str) {
    quiet("kill", &[&format!("-{signal}"), &pid.to_string()]);
}

/// Process, parent, name.
fn processes() -> Vec<(u32, u32, String)> {
    fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
            let (head, rest) = stat.rsplit_once(')')?;
            let name = head.split_once('(')?.1.to_owned();
            let parent = rest.split_ascii_whitespace().nth(1)?.parse().ok()?;
            Some((pid, parent, name))
        })
        .collect()
}

/// Steps in two parts, the second of which waits for the file.
pub fn two_parts(gate: &Path, steps: u64) -> Vec<Act> {
    let half = steps / 2;
    let mut acts = vec![started(steps)];
    acts.extend((1..=half).map(|index| step(index, 0.1)));
    acts.push(Act::Print("half of it".to_owned()));
    acts.push(Act::WaitFor(gate.to_owned()));
    acts.extend((half + 1..=steps).map(|index| step(index, 0.2)));
    acts.push(Act::Print("all of it".to_owned()));
    acts.push(ended(RunStatus::Completed, 0, "", steps));
    acts
}

/// Whether a log holds the end of step `step`.
pub fn has_step(events: &Path, step: u64) -> bool {
    fs::read_to_string(events)
        .is_ok_and(|text| text.contains(&format!("\"event\":\"step_ended\",\"step\":{step},")))
}

/// A program of the other machine's, found before the system's.
pub fn program_there(far: &Far, name: &str, text: &str) {
    let path = far.bench.path("bin").join(name);
    fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
}
