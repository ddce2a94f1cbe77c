//! Code of a model that tries to get out or to use up the machine: contained, told to the model in words, and the next call works.

use dialogue::rollout::CallFailure;
use dialogue::tool::{ToolClasses, ToolRegistry, Toolbox};
use serde_json::json;

use crate::common::{call, run, toolbox};

/// None, said on stderr: there is no python3 here, or the machine allows no sandbox.
fn python(config: &str) -> Option<ToolRegistry> {
    let text = format!("tools: [{{class_name: python, config: {{{config}}}}}]");
    let tools = ToolRegistry::parse(&text, "t.yaml", &ToolClasses::default()).expect("a tool");
    match tools.ready().remove(0).1 {
        Ok(note) => {
            assert!(note.is_some_and(|note| note.starts_with("code runs apart by ")));
            Some(tools)
        }
        Err(problem) => {
            let is_here = problem.contains("this machine allows no sandbox")
                || problem.contains("cannot start python3");
            assert!(is_here, "{problem}");
            eprintln!("skipped: {problem}");
            None
        }
    }
}

async fn one(toolbox: &mut Toolbox, code: &str) -> (Option<CallFailure>, String) {
    let record = run(toolbox, [call("python", &json!({"code": code}))])
        .await
        .remove(0);
    (record.failure, record.result)
}

#[tokio::test]
async fn what_code_prints_and_its_last_value_are_the_answer() {
    let Some(tools) = python("") else { return };
    let mut toolbox = toolbox(&tools, "d");
    for (code, expected) in [
        ("print('a')\nprint('ü', end='')", "a\nü"),
        ("x = 6\nx * 7", "42"),
        ("'text'", "'text'"),
        ("x = 1", "(nothing was printed)"),
        ("None", "(nothing was printed)"),
        (
            "import sys; print('err', file=sys.stderr); sys.exit(0)",
            "err",
        ),
        ("import os; os.write(1, b'raw')", "raw3"),
        (
            "import subprocess; subprocess.run(['sh', '-c', 'echo child; pwd'], check=True).returncode",
            "child\n/tmp\n0",
        ),
        ("input() if False else __name__", "'__main__'"),
    ] {
        assert_eq!(
            one(&mut toolbox, code).await,
            (None, expected.to_owned()),
            "{code}"
        );
    }
}

#[tokio::test]
async fn an_error_is_told_as_python_tells_it() {
    let Some(tools) = python("") else { return };
    let mut toolbox = toolbox(&tools, "d");
    let (failure, said) = one(
        &mut toolbox,
        "print('before')\ndef f():\n    return 1 / 0\nf()",
    )
    .await;
    assert_eq!(failure, Some(CallFailure::Tool));
    assert!(said.starts_with("error: before\nTraceback (most recent call last):\n  File \"<code>\", line 4, in <module>"), "{said}");
    assert!(
        said.contains("line 3, in f\n    return 1 / 0")
            && said.ends_with("ZeroDivisionError: division by zero"),
        "{said}"
    );
    let (failure, said) = one(&mut toolbox, "print('a'\n").await;
    assert_eq!(failure, Some(CallFailure::Tool));
    assert!(said.contains("SyntaxError"), "{said}");
    let (failure, said) = one(&mut toolbox, "import sys; sys.exit('no data')").await;
    assert_eq!(
        (failure, said.as_str()),
        (Some(CallFailure::Tool), "error: no data")
    );
    let (_, said) = one(&mut toolbox, "input()").await;
    assert!(
        said.ends_with("EOFError: EOF when reading a line"),
        "{said}"
    );
}

#[tokio::test]
async fn an_attack_is_contained_and_told_and_the_next_call_works() {
    let Some(tools) = python(
        "timeout: 3s, memory_mb: 256, scratch_mb: 16, processes: 16, max_output_bytes: 5000",
    ) else {
        return;
    };
    let mut toolbox = toolbox(&tools, "d");
    let failed = Some(CallFailure::Tool);
    let late = Some(CallFailure::TimedOut);
    for (attack, code, failure, expected) in [
        (
            "fork bomb",
            "import os\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n        pass",
            None,
            "error: ",
        ),
        (
            "many threads",
            "import threading, time\nfor _ in range(100): threading.Thread(target=time.sleep, args=(1000,)).start()",
            None,
            "can't start new thread",
        ),
        (
            "fill the disk",
            "f = open('/tmp/x', 'wb')\nwhile True: f.write(b'x' * 1000000)",
            failed,
            "File too large",
        ),
        (
            "fill the disk with files",
            "for i in range(10**9): open(f'/tmp/{i}', 'wb').write(b'x' * 100000)",
            failed,
            "No space left on device",
        ),
        (
            "sleep",
            "print('going to sleep', flush=True)\nimport time; time.sleep(1000)",
            late,
            "error: stopped after 3 s; it printed:\ngoing to sleep",
        ),
        (
            "burn CPU",
            "while True: pass",
            late,
            "error: stopped after 3 s",
        ),
        (
            "hang in C",
            "import re; re.match(r'(a+)+$', 'a' * 60 + 'b')",
            late,
            "error: stopped after 3 s",
        ),
        (
            "open a socket",
            "import socket; socket.create_connection(('1.1.1.1', 80), 2)",
            failed,
            "Network is unreachable",
        ),
        (
            "listen elsewhere",
            "import socket; socket.socket(socket.AF_VSOCK)",
            failed,
            "Function not implemented",
        ),
        (
            "look names up",
            "import socket; socket.gethostbyname('example.com')",
            failed,
            "name resolution",
        ),
        (
            "read /etc/passwd",
            "open('/etc/passwd').read()",
            failed,
            "No such file or directory",
        ),
        (
            "read the home directory",
            "import os; os.listdir(os.path.expanduser('~root') + '/.ssh')",
            failed,
            "No such file or directory",
        ),
        (
            "read the environment of the trainer",
            "open('/proc/1/environ').read()",
            failed,
            "Permission denied",
        ),
        (
            "print gigabytes",
            "while True: print('x' * 100000)",
            failed,
            "error: stopped: it printed more than 5000 bytes",
        ),
        (
            "print gigabytes as an error",
            "raise ValueError('x' * 10**7)",
            failed,
            "error: stopped: it printed more than 5000 bytes",
        ),
        (
            "kill everyone",
            "import os, signal\nfor victim in (os.getppid(), 1):\n    os.kill(victim, signal.SIGKILL)\nos.kill(-1, signal.SIGKILL)",
            failed,
            "",
        ),
        (
            "end itself",
            "print('so long', flush=True)\nimport os; os._exit(3)",
            failed,
            "error: so long\nended: exit status 3",
        ),
        (
            "kill itself",
            "import os; os.kill(os.getpid(), 9)",
            failed,
            "error: stopped: signal 9",
        ),
        (
            "stop its parent",
            "import os, signal, time; os.kill(os.getppid(), signal.SIGSTOP); time.sleep(0.1)",
            late,
            "error: stopped after 3 s",
        ),
        (
            "read its parent's memory",
            "import os; open(f'/proc/{os.getppid()}/mem', 'rb')",
            failed,
            "Permission denied",
        ),
        (
            "read what comes next",
            "import os\nprint([os.read(fd, 100) for fd in range(3, 20) if os.path.exists(f'/proc/self/fd/{fd}')])\nos.listdir(f'/proc/{os.getppid()}/fd')",
            failed,
            "Permission denied",
        ),
        (
            "write outside the scratch",
            "open('/usr/lathe', 'w')",
            failed,
            "Read-only file system",
        ),
        (
            "write beside the interpreter",
            "import os; open(os.path.dirname(os.__file__) + '/lathe.py', 'w')",
            failed,
            "Read-only file system",
        ),
        (
            "memory balloon",
            "a = []\nwhile True: a.append(bytearray(1 << 24))",
            failed,
            // MemoryError, or "more than 256 MiB of memory" where the watcher is there before the limit.
            "emory",
        ),
        (
            "memory balloon in shared pages",
            "import mmap\na = []\nwhile True:\n    m = mmap.mmap(-1, 1 << 24)\n    m.write(b'x' * (1 << 24))\n    a.append(m)",
            failed,
            "more than 256 MiB of memory",
        ),
        (
            "memory balloon in children",
            "import os, time\nfor _ in range(8):\n    if os.fork() == 0:\n        b = bytearray(60 << 20)\n        time.sleep(1000)\ntime.sleep(1000)",
            failed,
            "more than 256 MiB of memory",
        ),
        (
            "hidden memory",
            "import os; os.memfd_create('x')",
            failed,
            "Function not implemented",
        ),
        (
            "mount",
            "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\nassert libc.mount(b'x', b'/tmp', b'tmpfs', 0, 0) == 0, ctypes.get_errno()",
            failed,
            "AssertionError: 38",
        ),
        ("become root", "import os; os.setuid(0)", failed, "Error"),
        (
            "close the streams",
            "import os\nos.close(1); os.close(2); print('x')",
            failed,
            "error: it failed without a word",
        ),
        (
            "leave a daemon",
            "import os\nif os.fork() == 0:\n    os.setsid()\n    while True: pass\nprint('parent')",
            None,
            "parent",
        ),
    ] {
        let (failure_given, said) = one(&mut toolbox, code).await;
        if failure.is_some() {
            assert_eq!(failure_given, failure, "{attack}: {said}");
        }
        assert!(said.contains(expected), "{attack}: {said}");
        assert!(said.len() < 6000, "{attack}: {} bytes", said.len());
        assert_eq!(
            one(&mut toolbox, "print(6 * 7)").await,
            (None, "42".to_owned()),
            "after: {attack}"
        );
    }
}

#[tokio::test]
async fn nothing_of_one_call_is_left_for_the_next() {
    let Some(tools) = python("") else { return };
    let mut toolbox = toolbox(&tools, "d");
    let mess = "import builtins, os, time\nbuiltins.print = None\nx = 1\nos.makedirs('/tmp/a/b')\nopen('/tmp/a/b/left', 'w').close()\n\
                os.chmod('/tmp/a', 0)\nos.symlink('/usr', '/tmp/usr')\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(1000)";
    // Process 1, the Python that waits, and this.
    let look = "import os\nprint('x' in globals(), os.listdir('/tmp'), os.getcwd(), sum(name.isdigit() for name in os.listdir('/proc')))";
    for _ in 0..3 {
        assert_eq!(
            one(&mut toolbox, mess).await,
            (None, "(nothing was printed)".to_owned())
        );
        assert_eq!(one(&mut toolbox, look).await.1, "False [] /tmp 3");
    }
}

#[tokio::test]
async fn a_dialogues_own_python_remembers_until_it_is_stopped() {
    let Some(tools) = python("process: dialogue, timeout: 2s") else {
        return;
    };
    let (mut a, mut b) = (toolbox(&tools, "a"), toolbox(&tools, "b"));
    assert_eq!(one(&mut a, "x = 41\ndef up(): return x + 1").await.0, None);
    assert_eq!(one(&mut a, "up()").await.1, "42");
    assert!(
        one(&mut b, "x")
            .await
            .1
            .ends_with("NameError: name 'x' is not defined")
    );
    let (failure, said) = one(&mut a, "while True: pass").await;
    assert_eq!(failure, Some(CallFailure::TimedOut));
    assert_eq!(
        said,
        "error: stopped after 2 s; what it had defined is lost"
    );
    assert!(
        one(&mut a, "x")
            .await
            .1
            .ends_with("NameError: name 'x' is not defined")
    );
    assert_eq!(one(&mut a, "7").await.1, "7");
}

#[tokio::test]
async fn calls_of_one_turn_run_side_by_side() {
    let Some(tools) = python("concurrency: 4") else {
        return;
    };
    let mut toolbox = toolbox(&tools, "d");
    let calls = (0..8).map(|number| call("python", &json!({"code": format!("print({number})")})));
    let said: Vec<String> = run(&mut toolbox, calls)
        .await
        .into_iter()
        .map(|record| record.result)
        .collect();
    assert_eq!(said, ["0", "1", "2", "3", "4", "5", "6", "7"]);
}

#[tokio::test]
async fn without_a_sandbox_code_runs_only_where_the_config_says_so() {
    let text = "tools: [{class_name: python, config: {sandbox: none}}]";
    let tools = ToolRegistry::parse(text, "t.yaml", &ToolClasses::default()).expect("a tool");
    let Ok(note) = &tools.ready()[0].1 else {
        return;
    };
    assert!(
        note.as_deref()
            .is_some_and(|note| note.contains("runs openly")),
        "{note:?}"
    );
    assert_eq!(
        one(&mut toolbox(&tools, "d"), "1 + 1").await,
        (None, "2".to_owned())
    );
}

#[test]
fn what_is_wrong_with_a_python_tool_is_said() {
    for (config, expected) in [
        (
            "memory_mb: 1",
            "`config.memory_mb` is 1; expected a whole number from 64",
        ),
        ("sandbox: maybe", "unknown variant `maybe`"),
        ("readable: [data]", "expected full paths"),
        ("memory: 1", "unknown field `memory`"),
        (
            "process: dialogue, cache: 5",
            "answers depend on the calls before",
        ),
    ] {
        let text = format!("tools: [{{class_name: python, config: {{{config}}}}}]");
        let error = ToolRegistry::parse(&text, "t.yaml", &ToolClasses::default())
            .expect_err("refused")
            .to_string();
        assert!(error.contains(expected), "{config}: {error}");
    }
}
