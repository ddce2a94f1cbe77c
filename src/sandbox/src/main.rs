//! The helper that a sandboxed program is started by; see the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(code) => ExitCode::from(code),
        Err(problem) => {
            eprintln!("lathe-sandbox: {problem}");
            ExitCode::from(126)
        }
    }
}

#[cfg(target_os = "linux")]
fn run(arguments: &[String]) -> Result<u8, String> {
    let [stage, told] = arguments else {
        return Err("started by lathe for programs that it runs apart; not by hand".to_owned());
    };
    let told: sandbox::Arguments =
        serde_json::from_str(told).map_err(|error| format!("its arguments: {error}"))?;
    match stage.as_str() {
        "run" => sandbox::inside::outer(&told),
        "inside" => sandbox::inside::inner(&told),
        other => Err(format!("there is no stage {other}")),
    }
}

#[cfg(not(target_os = "linux"))]
fn run(_: &[String]) -> Result<u8, String> {
    Err("sandboxes need Linux".to_owned())
}
