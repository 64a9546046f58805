//! `bytepath advise` on a made-up observation (`tests/data/observations`) and the made-up study:
//! what it predicts, and what it refuses to predict.

use crate::made_up;
use crate::shared::{bytepath, words};
use bytepath::record::{CallRow, Observation, ObservedCall, ObservedSocket, Study, TrialStatus};
use bytepath::report::{self, Style};
use bytepath::study::StudyWriter;
use std::fs;
use std::path::Path;

const MADE_UP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/observations/made-up.json");

#[test]
fn the_same_calls_of_the_study_answer_for_the_program() {
    let advice = report::advise(&seen(), &made_up::study());
    let mut text = Vec::new();
    let style = Style { width: 100, colour: false, details: false };
    report::advice(&advice).write(&style, &mut text).unwrap();
    insta::assert_snapshot!("text", String::from_utf8(text).unwrap());

    // Checked by hand: in each block the sender's cost is the CPU time of its window per GiB of
    // that window, and the program sent 17 GiB.
    let [direction] = advice.directions.as_slice() else { panic!("{advice:#?}") };
    let sendfile = direction.options.iter().find(|option| option.cell == "sendfile").unwrap();
    let per_gib = |busy: f64, gbit: f64| busy / (gbit * 1e9 / 8.0 / (1u64 << 30) as f64);
    let gbit = |path: usize| match path {
        0 => [28.1, 27.6, 28.4, 27.9, 28.2],
        _ => [28.2, 27.7, 28.3, 28.0, 28.4],
    };
    let saved: Vec<f64> =
        (0..5).map(|b| per_gib(0.91, gbit(0)[b]) - per_gib(0.734, gbit(2)[b])).collect();
    let mean = saved.iter().sum::<f64>() / 5.0;
    assert!((sendfile.saved_per_gib.mean / mean - 1.0).abs() < 1e-6, "{sendfile:?}, {mean}");
    assert!((sendfile.saved.mean / (17.0 * mean) - 1.0).abs() < 1e-6, "{sendfile:?}");
    assert!(sendfile.saved_per_gib.low < mean && mean < sendfile.saved_per_gib.high);
    // The program was on the CPU all the time, so saved CPU time is saved time.
    assert!(sendfile.time_saved.is_some());
    let failed = direction.refused.iter().find(|refusal| refusal.what == "zcrx").unwrap();
    assert_eq!(failed.reason, "no trial of it was measured");
}

#[test]
fn what_was_not_measured_is_refused_with_the_reason() {
    let refused = |change: fn(&mut Observation, &mut Study)| {
        let (mut seen, mut study) = (seen(), made_up::study());
        change(&mut seen, &mut study);
        let advice = report::advise(&seen, &study);
        assert!(advice.directions.is_empty(), "{advice:#?}");
        advice.first
    };
    for (reason, change) in [
        (
            "No answer: observation and study are of different hosts or kernels: kernel (6.12.1 \
             and 6.18.0); run the study here",
            (|seen, _| seen.host.as_mut().unwrap().kernel_release = "6.12.1".into())
                as fn(&mut Observation, &mut Study),
        ),
        ("the observation does not record its host", |seen, _| seen.host = None),
        ("the study does not record its host", |_, study| study.header.facts.clear()),
        ("different hosts or kernels: CPU (Other and AMD EPYC 9B14)", |seen, _| {
            seen.host.as_mut().unwrap().cpu_model = "Other".into();
        }),
        (
            "each call moved 16 KiB on average, and the study has measured write and send calls \
             with 1 MiB only",
            |seen, study| {
                seen.sent.ways[0].calls <<= 6;
                let of_sender = study.trials.iter_mut().flat_map(|trial| &mut trial.roles);
                of_sender.for_each(|record| record.calls.clear());
            },
        ),
        (
            "3 connections carried the bytes, and the study has measured write and send calls with \
             1 only",
            |seen, _| {
                seen.sockets[0].sent /= 3;
                let socket = seen.sockets[0].clone();
                seen.sockets.extend([socket.clone(), socket]);
            },
        ),
        ("the bytes went over the loopback device (to 127.0.0.1:40000)", |seen, _| {
            seen.sockets[0].remote = Some("127.0.0.1:40000".into());
        }),
        ("only 1 MiB were moved; below 64 MiB", |seen, _| seen.sent.ways[0].bytes = 1 << 20),
        ("the program used several mechanisms (8.5 GiB by", |seen, _| {
            let way = &mut seen.sent.ways[0];
            way.bytes /= 2;
            let other = bytepath::record::Way { path: "sendfile".into(), ..way.clone() };
            seen.sent.ways.push(other);
        }),
        ("the study has no valid trial of write and send calls (path 'socket')", |_, study| {
            study.trials.retain(|trial| trial.cell.0 != "socket");
        }),
        ("No answer: the program moved no bytes over TCP.", |seen, _| {
            seen.sent.ways.clear();
            seen.received.ways.clear();
        }),
    ] {
        let first = refused(change);
        assert!(first.contains(reason), "{first}\nshould be\n{reason}");
    }
}

#[test]
fn a_single_block_and_a_program_that_waits_give_no_more_than_they_can() {
    let mut study = made_up::study();
    study.trials.retain(|trial| trial.block == 0 || trial.cell.0 != "sendfile");
    let mut seen = seen();
    seen.threads[0].time.as_mut().unwrap().run = 1.0;
    let advice = report::advise(&seen, &study);
    let [direction] = advice.directions.as_slice() else { panic!("{advice:#?}") };
    let refusal = direction.refused.iter().find(|refusal| refusal.what == "sendfile").unwrap();
    assert!(refusal.reason.contains("fewer than two blocks"), "{refusal:?}");
    assert!(direction.options.iter().all(|option| option.time_saved.is_none()));
    assert!(advice.remarks.iter().any(|remark| remark.starts_with("No time is predicted")));
    let measured = study.trials.iter().filter(|trial| trial.status == TrialStatus::Measured);
    assert!(measured.count() > 0);
}

#[test]
fn the_command_line_reads_both_and_prints_text_and_json() {
    let folder = tempfile::tempdir().unwrap();
    let study = write(&made_up::study(), &folder.path().join("study"));
    let (code, text, errors) = bytepath(&["advise", MADE_UP, &study]);
    assert_eq!((code, errors.as_str()), (0, ""), "{text}");
    assert!(words(&text).contains("splice instead of write and send calls:"), "{text}");
    let (code, json, _) = bytepath(&["advise", "--json", MADE_UP, &study]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((code, &json["format"]), (0, &"bytepath-advice".into()));
    assert_eq!(json["directions"][0]["cell"], "socket");

    let (code, _, errors) = bytepath(&["advise", &format!("{study}/hosts.json"), &study]);
    assert_eq!(code, 6, "{errors}");
    assert!(words(&errors).contains("is not an observation:"), "{errors}");
    let (code, _, errors) = bytepath(&["advise", "/nowhere", &study]);
    assert_eq!((code, errors.contains("cannot read /nowhere")), (6, true), "{errors}");
    let newer = folder.path().join("newer.json");
    let mut seen = seen();
    seen.schema += 1;
    fs::write(&newer, serde_json::to_string(&seen).unwrap()).unwrap();
    let (code, _, errors) = bytepath(&["advise", newer.to_str().unwrap(), &study]);
    assert_eq!((code, words(&errors).contains("newer than")), (3, true), "{errors}");
}

fn seen() -> Observation {
    serde_json::from_str(&fs::read_to_string(MADE_UP).unwrap()).unwrap()
}

fn write(study: &Study, folder: &Path) -> String {
    let mut writer = StudyWriter::create(folder, &study.header).unwrap();
    for trial in &study.trials {
        writer.append(std::slice::from_ref(trial)).unwrap();
    }
    folder.display().to_string()
}

/// An observed server: few bytes, many connections.
#[test]
fn loop_by_epoll_is_compared_with_others_for_as_many_connections() {
    let mut seen = seen();
    let call = |name: &str| {
        let row = made_up::trial(&made_up::PATHS[0], 0, 0).roles[0].calls[0].clone();
        let row = CallRow { name: name.into(), ..row };
        ObservedCall { tid: 7, number: 0, row, histogram: Vec::new() }
    };
    let socket = ObservedSocket {
        received: 6400,
        receive_calls: 100,
        sent: 102_400,
        send_calls: 100,
        ..seen.sockets[0].clone()
    };
    let notes = |seen: &Observation| report::advise(seen, &made_up::study()).remarks.join(" ");
    seen.sockets = vec![socket.clone(); 500];
    assert!(!notes(&seen).contains("event loops"), "nothing waits by epoll");
    seen.calls.push(call("epoll_pwait"));
    let command = "`bytepath run --workload rr:request=64,response=1024 --stream flows=500 --path \
                   epoll+epoll --path epoll+uring-loop` compares event loops";
    assert!(notes(&seen).contains(command), "{}", notes(&seen));
    seen.sent.ways.clear();
    let mut text = Vec::new();
    let page = report::advice_or_hint(None, &seen).expect("it is a server, if of few bytes");
    page.write(&Style { width: 100, colour: false, details: false }, &mut text).unwrap();
    assert!(words(&String::from_utf8(text).unwrap()).contains(command));
    seen.sockets.truncate(3);
    assert!(!notes(&seen).contains("event loops"), "few connections");
}
