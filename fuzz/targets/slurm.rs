//! The output of Slurm's programs, and the record of a fleet: any text yields values that callers
//! may rely on, or an error.

use bytepath::fleet::{Fleet, MOST_SHARDS, slurm};
use bytepath::{spec, study, testbed};

use super::round_trip;

pub fn check(data: &[u8]) {
    if let Ok(fleet) = Fleet::parse("fleet.json", data) {
        assert!((1..=MOST_SHARDS).contains(&fleet.shards));
        assert!(fleet.jobs.iter().all(|job| slurm::parse_job(job).as_ref() == Ok(job)));
        round_trip::record(&fleet);
    }
    let text = String::from_utf8_lossy(data);
    if let Ok(job) = slurm::parse_job(&text) {
        assert!(!job.is_empty() && job.bytes().all(|byte| byte.is_ascii_digit()));
    }
    if let Ok(tasks) = slurm::parse_tasks(&text) {
        assert!(tasks.len() <= text.lines().count());
        assert!(tasks.iter().all(|task| !task.state.contains('|')));
    }
    if let Some(name) = slurm::parse_address(&text) {
        assert!(!name.is_empty() && !name.contains(char::is_whitespace));
    }
    if let Ok(nodes) = slurm::parse_nodes(&text) {
        // Whatever the nodes are called, they make one testbed and add no option to it.
        let addresses = ["10.0.0.1", "10.0.0.2"].map(|address| address.parse().expect("one"));
        let declared = study::testbed_spec(testbed::CATALOG);
        let typed = slurm::testbed(&nodes, addresses);
        let choice = spec::parse_testbed(&typed, &declared).expect("a testbed");
        for (role, node) in ["sender", "receiver"].into_iter().zip(&nodes) {
            let command = choice.options.word(role);
            let words: Vec<&str> = command.split(' ').collect();
            assert!(words.contains(&format!("--nodelist={node}").as_str()), "{command}");
        }
    }
}
