//! What a panic does to this program: it is shown as usual, and then the program ends at once,
//! leaving a core file where those are kept. A server with a part of its threads gone would deceive
//! its clients.

/// Makes every panic from now on end the program.
pub fn abort_on_panic() {
    let show = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        // A service has answered what the library that speaks to it cannot read: that becomes an error.
        #[cfg(feature = "services")]
        if azekura_services::panics_are_caught() {
            return;
        }
        show(info);
        std::process::abort();
    }));
}
