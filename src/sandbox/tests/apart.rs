//! Programs that try to get out, by every kind of sandbox that this machine allows.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use sandbox::{Kind, Limits, NoSandbox, Sandbox, Spec};

/// Every kind that works here; none is said on stderr.
fn sandboxes() -> Vec<Sandbox> {
    let found: Vec<Sandbox> = [Kind::Namespaces, Kind::Bubblewrap]
        .into_iter()
        .filter_map(|kind| match Sandbox::find(Some(kind)) {
            Ok(sandbox) => Some(sandbox),
            Err(error @ NoSandbox::NotAllowed { .. }) => {
                eprintln!("not tried: {error}");
                None
            }
            Err(error) => panic!("{error}"),
        })
        .collect();
    found
}

fn spec(program: &str) -> Spec {
    Spec {
        command: ["/bin/sh", "-c", program].map(str::to_owned).into(),
        readable: Vec::new(),
        env: BTreeMap::from([("PATH".to_owned(), "/usr/bin:/bin".to_owned())]),
        limits: Limits {
            memory_bytes: 128 << 20,
            scratch_bytes: 8 << 20,
            processes: 16,
            cpu_s: 5,
        },
    }
}

fn run(sandbox: &Sandbox, spec: &Spec) -> Output {
    sandbox
        .command(spec)
        .env("SECRET", "of the run")
        .stdin(Stdio::null())
        .output()
        .expect("the helper starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim().to_owned()
}

#[test]
fn a_program_runs_with_its_streams_and_its_exit_code() {
    for sandbox in sandboxes() {
        let output = run(&sandbox, &spec("echo out; echo err >&2; exit 7"));
        assert_eq!(output.status.code(), Some(7));
        assert_eq!(
            (text(&output.stdout), text(&output.stderr)),
            ("out".to_owned(), "err".to_owned())
        );
        let output = run(&sandbox, &spec("kill -9 $$"));
        assert_eq!(output.status.code(), Some(137));
    }
}

#[test]
fn the_machines_files_names_and_variables_are_not_there() {
    let home = tempfile::tempdir().expect("a folder");
    let secret = home.path().join("secret");
    fs::write(&secret, "key").expect("written");
    let program = format!(
        "cat {0} /etc/passwd /etc/shadow /etc/hostname /proc/1/environ; ls {1}; ls -A / /etc /home /root; env; hostname",
        secret.display(),
        home.path().display()
    );
    for sandbox in sandboxes() {
        let output = run(&sandbox, &spec(&program));
        let said = text(&output.stdout);
        for leak in ["key", "root:", "passwd", "shadow", "SECRET", "of the run"] {
            assert!(!said.contains(leak), "{leak}: {said}");
        }
        assert!(said.ends_with("sandbox"), "the host's name: {said}");
    }
}

#[test]
fn only_the_scratch_folder_can_be_written_and_it_is_gone_afterwards() {
    let outside = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let program = format!(
        "for place in / /usr /etc /dev /proc /lib {}; do echo x > $place/lathe-was-here && echo WROTE $place; done; \
         echo fine > /tmp/lathe-was-here; cat /tmp/lathe-was-here",
        outside.path().display()
    );
    for sandbox in sandboxes() {
        let mut spec = spec(&program);
        spec.readable = vec![outside.path().to_owned()];
        let output = run(&sandbox, &spec);
        assert_eq!(text(&output.stdout), "fine", "{}", text(&output.stderr));
    }
    assert!(!Path::new("/tmp/lathe-was-here").exists());
    let left = fs::read_dir(outside.path()).expect("it is there").count();
    assert_eq!(left, 0);
}

#[test]
fn a_folder_that_may_be_read_has_its_own_name_inside() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    fs::write(folder.path().join("data"), "rows").expect("written");
    for sandbox in sandboxes() {
        let mut spec = spec(&format!("cat {}/data", folder.path().display()));
        spec.readable = vec![folder.path().to_owned()];
        assert_eq!(text(&run(&sandbox, &spec).stdout), "rows");
    }
}

#[test]
fn there_is_no_network_but_its_own() {
    for sandbox in sandboxes() {
        let output = run(
            &sandbox,
            &spec("tail -n +3 /proc/net/dev | cut -d: -f1; cat /proc/net/route | wc -l"),
        );
        let said = text(&output.stdout);
        assert!(said.starts_with("lo"), "{said}");
        assert!(said.lines().count() <= 2, "one device and no route: {said}");
        assert!(said.ends_with(['0', '1']), "a heading at most: {said}");
    }
}

#[test]
fn what_needs_power_is_a_system_call_that_there_is_not() {
    for sandbox in sandboxes() {
        for program in ["unshare -U true", "mount -t tmpfs x /tmp", "chroot / true"] {
            let output = run(&sandbox, &spec(program));
            assert!(!output.status.success(), "{program}");
        }
        let output = run(
            &sandbox,
            &spec("grep -E 'CapEff|CapPrm|CapBnd|NoNewPrivs|Seccomp:' /proc/self/status"),
        );
        let said = text(&output.stdout);
        for line in [
            "CapPrm:\t0000000000000000",
            "CapEff:\t0000000000000000",
            "NoNewPrivs:\t1",
            "Seccomp:\t2",
        ] {
            assert!(said.contains(line), "{line}: {said}");
        }
    }
}

#[test]
fn too_much_of_anything_is_refused_or_ends_the_program() {
    for sandbox in sandboxes() {
        let failed = |program: &str| {
            let output = run(&sandbox, &spec(program));
            assert!(
                !output.status.success(),
                "{program}: {}",
                text(&output.stdout)
            );
            text(&output.stderr)
        };
        // One file, and many.
        failed("head -c 20000000 /dev/zero > /tmp/x");
        failed("set -e; for i in 1 2 3 4 5 6; do head -c 2000000 /dev/zero > /tmp/$i; done");
        // Each process is small; all together are not.
        let together = "for i in 1 2 3 4; do (head -c 60000000 /dev/zero; sleep 1000) | tail > /dev/null & done; sleep 1000";
        assert_eq!(
            failed(together),
            "lathe-sandbox: stopped: more than 128 MiB of memory"
        );
        assert!(failed("while :; do :; done").contains("stopped: too much CPU time"));
        let bomb = "f() { f | f & wait; }; f; sleep 1000";
        let began = Instant::now();
        let mut child = sandbox
            .command(&spec(bomb))
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the helper starts");
        // Refused, it may go on; the caller's time-out ends it.
        while child.try_wait().expect("ours").is_none() && began.elapsed() < Duration::from_secs(3)
        {
            std::thread::yield_now();
        }
        let _ = child.kill();
        child.wait().expect("ours");
    }
}

#[test]
fn killing_the_helper_ends_all_that_ran_inside() {
    for sandbox in sandboxes() {
        // One that left its group and its parent.
        let program = "setsid sh -c 'sleep 1000 & sleep 1000' & echo started; sleep 1000";
        let mut child = sandbox
            .command(&spec(program))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the helper starts");
        let mut out = child.stdout.take().expect("piped");
        let mut began = [0; 7];
        out.read_exact(&mut began).expect("it starts");
        child.kill().expect("ours");
        child.wait().expect("ours");
        // The pipe ends when the last process that holds it does.
        let mut rest = Vec::new();
        out.read_to_end(&mut rest).expect("it ends");
    }
}

#[test]
fn a_program_that_is_not_there_is_named() {
    for sandbox in sandboxes() {
        let mut spec = spec("");
        spec.command = vec!["/no/such/program".to_owned()];
        let output = run(&sandbox, &spec);
        assert_eq!(output.status.code(), Some(126));
        assert!(text(&output.stderr).starts_with("lathe-sandbox: /no/such/program: "));
    }
}
