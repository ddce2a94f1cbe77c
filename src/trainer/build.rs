//! Compiles the C++ shim and tells the linker where libtorch lies, so that programs and tests start from any folder.

use std::path::{Path, PathBuf};

fn main() {
    let lib = std::env::var("DEP_TCH_LIBTORCH_LIB").expect("torch-sys says where libtorch is");
    link_arguments(&lib);
    compile_shim(Path::new(&lib));
}

fn link_arguments(lib: &str) {
    println!("cargo:rustc-link-arg=-Wl,-rpath,{lib}");
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        // A checkout that was moved or copied: seen from target/release/ and from target/release/deps/.
        println!("cargo:rustc-link-arg=-Wl,-rpath,$ORIGIN/../../.libtorch/torch/lib");
        println!("cargo:rustc-link-arg=-Wl,-rpath,$ORIGIN/../../../.libtorch/torch/lib");
        // GNU ld (not LLD) otherwise wants all that libtorch_cuda.so needs of cuBLAS, cuDNN and NCCL at link time.
        println!("cargo:rustc-link-arg=-Wl,--allow-shlib-undefined");
    }
}

/// The flags are those torch-sys compiles its own bindings with: both sides must agree on the C++ ABI.
fn compile_shim(lib: &Path) {
    println!("cargo:rerun-if-changed=src/torch_ext/shim.cpp");
    println!("cargo:rerun-if-env-changed=LIBTORCH_INCLUDE");
    println!("cargo:rerun-if-env-changed=LIBTORCH_CXX11_ABI");
    let root = std::env::var("LIBTORCH_INCLUDE").map_or_else(
        |_| lib.parent().expect("lib has a parent").to_path_buf(),
        PathBuf::from,
    );
    let abi = std::env::var("LIBTORCH_CXX11_ABI").unwrap_or_else(|_| "1".to_owned());
    cc::Build::new()
        .cpp(true)
        .pic(true)
        .warnings(false)
        .std("c++17")
        .define("_GLIBCXX_USE_CXX11_ABI", Some(abi.as_str()))
        .define("GLOG_USE_GLOG_EXPORT", None)
        .include(root.join("include"))
        .include(root.join("include/torch/csrc/api/include"))
        .file("src/torch_ext/shim.cpp")
        .compile("lathe_torch_ext");
}
