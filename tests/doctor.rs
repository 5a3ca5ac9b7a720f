//! The doctor's report, obtained without starting the runtime, matches the runtime itself.

use usmq::doctor::{State, Topic};

#[test]
fn the_report_matches_the_runtime_before_and_after_its_start() {
    let asked = usmq::doctor();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    assert!(!maps.contains("libur_adapter_"), "asking has started the runtime here");
    let devices = usmq::devices().unwrap();
    assert_eq!(asked.devices(), devices.len());
    let shown = |report: &usmq::doctor::Report| -> Vec<String> {
        let of_devices = report.findings().iter().filter(|finding| finding.topic == Topic::Devices);
        of_devices.map(|finding| finding.what.clone()).collect()
    };
    for (device, what) in devices.iter().zip(shown(&asked)) {
        assert!(what.starts_with(device.filter_string().unwrap()) && what.contains(device.name()), "{what}");
    }
    assert!(asked.is_ok(), "{asked}");

    let after = usmq::doctor();
    assert_eq!(after.devices(), devices.len());
    assert_eq!(shown(&after)[..devices.len()], shown(&asked)[..devices.len()]);
    assert!(after.findings().iter().any(|finding| finding.state == State::Note), "{after}");
}
