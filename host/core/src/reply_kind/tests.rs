//! Tests of the classification of replies (L23). For each kind, there are replies of that kind, and replies that look
//! similar but are not of that kind.

use super::patterns::{HANDED_BACK, REFUSED};
use super::{ReplyKind, ToolUse, classify};

const INPUT: &str = "Review the screenshots on my desktop, extract names, and rename them.";

fn kind_of(reply: &str) -> ReplyKind {
    classify(reply, INPUT, ToolUse::Some)
}

fn assert_all_are(kind: ReplyKind, replies: &[&str]) {
    let kinds = replies.iter().map(|reply| (kind_of(reply), *reply));
    let others: Vec<_> = kinds.filter(|(found, _)| *found != kind).collect();
    assert!(others.is_empty(), "{others:#?} are not {kind:?}");
}

#[test]
fn l23_at_least_21_patterns_recognize_deflections() {
    assert!(REFUSED.patterns.len() + HANDED_BACK.patterns.len() >= 21);
}

#[test]
fn l23_incomplete_replies_are_recognized() {
    assert_all_are(
        ReplyKind::Incomplete,
        &[
            "4 remaining…",
            "I've renamed 3 files. There are 4 remaining...",
            "I have renamed 3 of the 7 screenshots, 4 remaining.",
            "Done so far: 3 files. **4 files remaining**",
            "There are four screenshots remaining on the desktop.",
            "Three are renamed and 4 files still need to be processed.",
            "Renamed three screenshots.\n\n- 4 left to process",
            "There are 4 left.",
            "3 down, 4 to go!",
            "3 files are renamed; 4 not yet.",
            "The remaining files still need names.",
            "Not all of the screenshots have been renamed.",
            "I'll continue with the remaining screenshots.",
            "I will now go on with the remaining 4 files.",
            "Three are done; let me move on to the others.",
            "I am moving on to the next folder.",
            "I’ll now continue with the next file.",
            "I will proceed to the next screenshot.",
            "Let me continue with screenshot 4.",
            "Next, I'll extract the text of screenshot 4.",
            "Now let me rename the second file.",
            "Continuing with the fourth screenshot.",
            "Moving on to the next batch.",
            "Three are done. To be continued.",
            "I am going to proceed with the others.",
        ],
    );
}

#[test]
fn l23_replies_that_only_sound_incomplete_are_answers() {
    assert_all_are(
        ReplyKind::Answer,
        &[
            "The remaining 3 files are unchanged, as you asked.",
            "I renamed 4 files, the remaining ones I left alone.",
            "I renamed 4 files and left the remaining 3 unchanged.",
            "0 remaining.",
            "7 files renamed, nothing remaining.",
            "7 renamed, no files remaining.",
            "Renamed: 7, zero remaining.",
            "There were 4 remaining, which I then renamed.",
            "If there were 4 remaining I would have told you.",
            "The note in the file says \"4 remaining, I'll continue tomorrow\".",
            "The file contains `4 remaining`.",
            "This is its content:\n```\nTODO: 4 remaining\nI'll continue with the next.\n```",
            "> I'll continue with the next file\n\nis what the first line says.",
            "You have 12 days remaining on your subscription.",
            "The account has 400 credits remaining.",
            "The battery has 40 percent remaining.",
            "There are 20 minutes left.",
            "{\"done\": 3, \"note\": \"4 remaining, I'll continue with the next\"}",
            "[\"4 remaining\"]",
            "Once you agree, I will continue with the others tomorrow in a session of your choice.",
            "I'll leave the remaining 3 files as they are.",
            "The train will go on to Basel.",
            "You can go on with the next chapter.",
            "The left column has 4 rows.",
            "The files were sorted by name; the rest is as it was.",
            "She turned left to see 4 birds.",
            "Es sind noch 4 übrig.",
        ],
    );
}

#[test]
fn l23_an_answer_about_remaining_work_is_accepted_if_the_input_asks_about_it() {
    let reply = "There are 4 screenshots remaining: a, b, c and d.";
    for input in ["How many files are left?", "list the remaining files", "What is still pending?"] {
        assert_eq!(classify(reply, input, ToolUse::Some), ReplyKind::Answer, "{input}");
    }
    for input in ["Rename the remaining files.", "Rename all files in the left column", ""] {
        assert_eq!(classify(reply, input, ToolUse::Some), ReplyKind::Incomplete, "{input}");
    }
    let announced = "I'll continue with the next file.";
    assert_eq!(classify(announced, "What is left?", ToolUse::Some), ReplyKind::Incomplete);
}

#[test]
fn l23_deflections_are_recognized() {
    assert_all_are(
        ReplyKind::Deflection,
        &[
            "I don't have access to your desktop.",
            "I don’t currently have access to your files.",
            "Unfortunately, I do not have direct access to the file system.",
            "I have no access to that folder.",
            "I can't access files on your computer.",
            "I cannot directly rename anything.",
            "I can't do that.",
            "I'm sorry, but I can't help with that.",
            "I cannot assist you with renaming files.",
            "I cannot open images.",
            "I'm unable to look at screenshots.",
            "I am currently unable to rename files.",
            "I'm not able to view images.",
            "I don't have the ability to rename files.",
            "I don't have permission to do this.",
            "I don't have a tool for that.",
            "I have no way to see your desktop.",
            "I lack the ability to read images.",
            "As an AI, I work with text only.",
            "As a large language model, I only produce text.",
            "I'm just a language model.",
            "That is beyond my capabilities.",
            "Renaming files is not something I can do.",
            "It's not possible for me to see the desktop.",
            "I won't be able to rename those.",
            "I found 7 screenshots. Would you like me to rename them?",
            "I see seven files. Do you want me to proceed?",
            "There are seven files. Shall I rename them?",
            "Should I continue?",
            "Please provide the names.",
            "Please confirm.",
            "Could you share the screenshots with me?",
            "I found the files. Let me know if you'd like me to rename them.",
            "Let me know how to proceed with them.",
            "I need more information about the files.",
            "You will have to rename them manually.",
            "You can do this yourself in the file manager.",
            "If you'd like, I can rename them.",
            "Tell me which files you mean.",
        ],
    );
}

#[test]
fn l23_replies_that_only_sound_like_deflections_are_answers() {
    assert_all_are(
        ReplyKind::Answer,
        &[
            "I was unable to open two files: they are encrypted. The other five are renamed.",
            "I could not find any error in the log.",
            "I can't find any mistake in it.",
            "I can't wait to see it!",
            "I cannot recommend it enough.",
            "I no longer see the problem.",
            "The message reads: \"I don't have access to the repository\".",
            "The error is `I can't do that`.",
            "He wrote that you don't have access to the folder.",
            "The user has no permission on /srv: ask the administrator to add it.",
            "The files are renamed. Let me know if you have any questions.",
            "The files are renamed. Would you like me to do anything else?",
            "The files are renamed. Shall I also sort them?",
            "The form says: please sign. It is due on Friday.",
            "The service does not have a way to list users.",
            "You can open the file in any editor.",
            "The sum is 42.",
            "Run `please provide` to see the help.",
            "```\nprint(\"I can't do that\")\n```",
            "The assistant in the story said “I'm unable to comply”.",
            "The report has three parts. First comes the summary. Then the tables. I do not have access to page 9, which \
             is sealed, as the cover says. The last part is the index. It is complete. It has 20 entries.",
            "{\"answer\": \"I don't have access\"}",
            "Je n'ai pas accès à ce dossier.",
            "I don't think so: the numbers differ by 3.",
            "It is the second file. You asked for its size; it is 20 kB.",
            "The function can not return null. It is safe.",
            "Their policy: do not share passwords.",
            "The letter ends with a question to the landlord about the deposit. It is dated May 4.",
            "I have access to all 7 files; their names are a to g.",
            "Use as a language model anything that speaks this protocol.",
            "Access is granted. The tool is installed. The permission was there before.",
            "I am done with the first part of the book. It is about whales.",
            "The two reports agree.",
            "Ask Ann to confirm the date.",
            "She asked: \"Would you like me to stay?\"",
            "The scope of this document is limited to printers.",
            "You can compare them with diff.",
            "There is no such file.",
            "The desktop is empty.",
        ],
    );
}

/// L23: a refusal in the first person is a deflection if the reply is short and no tool was called in the turn.
#[test]
fn l23_a_short_refusal_without_any_tool_call_is_a_deflection() {
    let refusals = [
        "I could not find the files.",
        "I'm sorry, that did not work out.",
        "I'm afraid this is too hard.",
        "Unfortunately, I have nothing for you.",
        "I must decline.",
        "I apologize for the inconvenience.",
        "I do not have that.",
    ];
    for reply in refusals {
        assert_eq!(classify(reply, INPUT, ToolUse::None), ReplyKind::Deflection, "{reply}");
        assert_ne!(classify(reply, INPUT, ToolUse::Some), ReplyKind::Deflection, "{reply}");
        let long = format!("{reply} {}", "The log of the day has been read and it says a lot. ".repeat(8));
        assert_ne!(classify(&long, INPUT, ToolUse::None), ReplyKind::Deflection, "{reply}");
    }
    for reply in
        ["The capital of France is Paris.", "I can't wait!", "I'm sorry to hear that.", "You can't divide by 0."]
    {
        assert_eq!(classify(reply, INPUT, ToolUse::None), ReplyKind::Answer, "{reply}");
    }
}

#[test]
fn l23_a_completion_summary_overrides_the_other_kinds() {
    assert_all_are(
        ReplyKind::Completion,
        &[
            "All screenshots have been renamed successfully...",
            "All 7 files have been processed. Earlier I said that there are 4 remaining.",
            "All of the screenshots on your desktop have been renamed. Would you like me to sort them?",
            "All seven files, the duplicates among them, have been renamed. I can't access anything else.",
            "Everything has been renamed. There are 4 remaining.",
            "The task is complete. I'll continue with the next one.",
            "I have now renamed all screenshots. I don't have access to others.",
            "All done! Let me know if you'd like me to go on.",
        ],
    );
    assert_all_are(
        ReplyKind::Incomplete,
        &[
            "Not all screenshots have been renamed: 4 remaining.",
            "Once all files have been renamed I'll tell you. 4 remaining.",
            "Almost all files have been renamed. 4 remaining.",
            "All files will have been renamed soon. 4 remaining.",
            "The first file says \"all files have been renamed\". There are 4 remaining.",
        ],
    );
}

#[test]
fn l23_empty_replies_are_recognized() {
    assert_all_are(ReplyKind::Empty, &["", " \n\t"]);
}

/// Unusual and long replies are classified in bounded time without a panic.
#[test]
fn any_reply_is_classified_without_a_panic() {
    let long = "i can not ".repeat(50_000);
    for reply in
        ["\"", "`", "“", "'''", "......", "?!?", ", , ,", "I’", "*", "1.5.", "ÄÖÜ ß İ", "```", "~~~\n```", &long]
    {
        classify(reply, reply, ToolUse::None);
    }
}
