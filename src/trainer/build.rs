//! Compiles the C++ shim and tells the linker where libtorch lies, so that programs and tests start from any folder.
fn main() {
    let lib = std::env::var("DEP_TCH_LIBTORCH_LIB").expect("torch-sys says where libtorch is");
    println!("cargo:rustc-link-arg=-Wl,-rpath,{lib}");
}
