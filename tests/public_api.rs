//! The public Rust API is the one that tests/public_api.txt lists, so that no change of it is accidental.
//!
//! Reads the pages that rustdoc makes, which know re-exports, inherent methods and fields, and keeps of each item its
//! kind, path and declaration. `USMQ_UPDATE=1 cargo test --features arrow --test public_api` writes the list.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// The text of a piece of HTML, on one line.
fn text(html: &str) -> String {
    let mut text = String::new();
    let mut rest = html;
    while let Some((before, tag)) = rest.split_once('<') {
        text += before;
        rest = tag.split_once('>').map_or("", |(_, after)| after);
    }
    text += rest;
    for (escaped, plain) in
        [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#39;", "'"), ("&nbsp;", " "), ("&amp;", "&")]
    {
        text = text.replace(escaped, plain);
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// What follows each `start` up to `end`.
fn between<'a>(html: &'a str, start: &'a str, end: &'a str) -> impl Iterator<Item = &'a str> {
    html.split(start).skip(1).filter_map(move |rest| rest.split_once(end)).map(|(found, _)| found)
}

/// The declarations on one page, each after the path of the item.
fn declarations(path: &Path, page: &str, found: &mut BTreeSet<String>) {
    let name = path.with_extension("");
    let name = name.to_str().unwrap().replace('/', "::");
    // Implementations of other crates' traits, and methods that they bring, are below these headings.
    let own = page.split("id=\"trait-implementations\"").next().unwrap();
    let own = own.split("id=\"deref-methods").next().unwrap();
    for item in between(own, "<pre class=\"rust item-decl\"><code>", "</code></pre>") {
        found.insert(format!("{name}: {}", text(item)));
    }
    for method in between(own, "<h4 class=\"code-header\">", "</h4>") {
        found.insert(format!("{name}: {}", text(method)));
    }
    // Traits of the type, without those that every type has.
    let traits = page.split("id=\"trait-implementations-list\"").nth(1).unwrap_or_default();
    let traits = traits.split("id=\"synthetic-implementations\"").next().unwrap();
    for implemented in between(traits, "<h3 class=\"code-header\">", "</h3>") {
        found.insert(format!("{name}: {}", text(implemented)));
    }
}

/// The version of rustdoc, whose pages differ between versions.
fn rustdoc() -> String {
    let path = Path::new(env!("CARGO")).with_file_name("rustdoc");
    let done = Command::new(if path.exists() { path } else { "rustdoc".into() }).arg("--version").output();
    let text = String::from_utf8(done.unwrap().stdout).unwrap();
    text.split_whitespace().take(2).collect::<Vec<_>>().join(" ")
}

#[test]
fn the_public_api_is_the_listed_one() {
    let (list, version) = (Path::new(ROOT).join("tests/public_api.txt"), format!("# {}", rustdoc()));
    let updates = std::env::var_os("USMQ_UPDATE").is_some();
    let listed = fs::read_to_string(&list).unwrap_or_default();
    if !updates && listed.lines().next() != Some(&version) {
        println!(
            "tests/public_api.txt was made by another rustdoc than {version}: the lists are not compared"
        );
        return;
    }
    let target = Path::new(ROOT).join("target/public-api");
    let mut cargo = Command::new(env!("CARGO"));
    // Without SYCL and with the arrow feature, as docs.rs builds it.
    cargo.args(["doc", "--no-deps", "--quiet", "--features", "arrow", "--target-dir"]).arg(&target);
    let done = cargo.current_dir(ROOT).env("DOCS_RS", "1").output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let docs = target.join("doc");
    let all = fs::read_to_string(docs.join("usmq/all.html")).unwrap();
    let mut found = BTreeSet::new();
    // The list, and not the folder, in which pages of removed items stay.
    for link in between(&all, "<li><a href=\"", "\"").filter(|link| link.ends_with(".html")) {
        let path = Path::new("usmq").join(link);
        let page = fs::read_to_string(docs.join(&path)).unwrap();
        declarations(&path, &page, &mut found);
    }
    assert!(found.len() > 1000, "only {} items were found; does the search still work?", found.len());
    let found = format!("{version}\n{}\n", found.into_iter().collect::<Vec<_>>().join("\n"));
    if updates {
        return fs::write(&list, &found).unwrap();
    }
    let (before, after): (BTreeSet<_>, BTreeSet<_>) = (listed.lines().collect(), found.lines().collect());
    let gone: Vec<_> = before.difference(&after).map(|line| format!("- {line}")).collect();
    let new: Vec<_> = after.difference(&before).map(|line| format!("+ {line}")).collect();
    assert!(
        gone.is_empty() && new.is_empty(),
        "the public API differs from tests/public_api.txt:\n{}\n{}\nIf that is intended, run USMQ_UPDATE=1 cargo test \
         --features arrow --test public_api, and add the change to CHANGELOG.md",
        gone.join("\n"),
        new.join("\n")
    );
}
