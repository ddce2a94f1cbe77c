//! Compiles the C++ shim and tells the linker where libtorch lies, so that programs and tests start from any folder.
fn main() {
    let lib = std::env::var("DEP_TCH_LIBTORCH_LIB").expect("torch-sys says where libtorch is");
    link_arguments(&lib);
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
