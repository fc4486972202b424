//! The exported names of functions that are written in C, since they take a list of arguments of any
//! length. A shared library of Rust exports no functions of C, so each name is a jump.

use std::arch::naked_asm;

macro_rules! jumps {
    ($($name:ident => $target:ident;)*) => {
        unsafe extern "C" { $( fn $target(); )* }
        $(
            #[doc = concat!("`", stringify!($name), "`.")]
            ///
            /// # Safety
            /// As for the C function.
            #[unsafe(naked)]
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name() {
                #[cfg(target_arch = "x86_64")]
                naked_asm!("jmp {}", sym $target);
                #[cfg(target_arch = "aarch64")]
                naked_asm!("b {}", sym $target);
            }
        )*
    };
}

jumps! {
    execl => azekura_execl;
    execlp => azekura_execlp;
    execle => azekura_execle;
    fprintf => azekura_fprintf;
    vfprintf => azekura_vfprintf;
    __fprintf_chk => azekura_fprintf_chk;
    __vfprintf_chk => azekura_vfprintf_chk;
    dprintf => azekura_dprintf;
    vdprintf => azekura_vdprintf;
    __dprintf_chk => azekura_dprintf_chk;
    __vdprintf_chk => azekura_vdprintf_chk;
}
