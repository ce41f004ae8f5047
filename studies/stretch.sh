#!/bin/sh
# One stretch of a study, for a machine that you have for minutes only and that keeps nothing:
#     sh studies/stretch.sh STUDY DATA MINUTES OUT [key=value ...]
# STUDY   scitldr, defacto, code, qa_feedback or pubmedqa
# DATA    folder of its files, as published
# OUT     folder that is carried back, and here again for the next stretch: STUDY.tar.00, .01, ... of 15 MiB at most
# Ends with the status of `text2grad compare`: 0 done, 75 not yet, 1 a run failed. FOLDER, FROM and TEXT2GRAD may be set.
set -eu
study=$1 data=$2 minutes=$3 out=$4
shift 4
folder=${FOLDER:-runs}
from=${FROM:-$out}
here=$(dirname "$0")
case $study in
    scitldr)
        config=summarization/scitldr
        set -- "settings.data=$data/scitldr_train.jsonl" "settings.held_out=$data/scitldr_dev.jsonl" "$@"
        ;;
    defacto)
        config=summarization/defacto
        set -- "settings.data=$data/defacto_train.jsonl" "settings.held_out=$data/defacto_val.jsonl" "$@"
        ;;
    code)
        config=code/code
        set -- "settings.data=$data/mbpp.jsonl" "settings.task_options.humaneval=$data/HumanEval.jsonl.gz" "$@"
        ;;
    qa_feedback)
        config=qa/qa_feedback
        set -- "settings.data=$data/qa_feedback_dev.json" "$@"
        ;;
    pubmedqa)
        config=qa/pubmedqa
        set -- "settings.data=$data/pubmedqa_pqal.json" \
            "settings.task_options.test_ids=$data/pubmedqa_test_ids.json" "$@"
        ;;
    *)
        echo "STUDY should be scitldr, defacto, code, qa_feedback or pubmedqa, got $study" >&2
        exit 2
        ;;
esac

mkdir -p "$folder" "$out"
if [ ! -d "$folder/$study" ] && [ -f "$from/$study.tar.00" ]; then
    cat "$from/$study.tar."[0-9][0-9] | tar -xzf - -C "$folder"
fi
status=0
${TEXT2GRAD:-text2grad} compare "$folder/$study" --config "$here/$config.yaml" --minutes "$minutes" "$@" || status=$?

# What the next machine needs: the finished runs, the model that the others start from, and the table for people.
rm -rf "$out/new" && mkdir "$out/new"
(
    cd "$folder"
    find "$study" -type f \( -name 'seed-*.done' -o -path "$study/sft/seed-*/model/*" -o -name 'seed-*.log' \)
    find "$study" -maxdepth 1 -type f \( -name '*.json' -o -name report.html \)
) | tar -czf - -C "$folder" -T - | split -b 15m -d -a 2 - "$out/new/$study.tar."
[ -f "$out/new/$study.tar.00" ] && rm -f "$out/$study.tar."[0-9][0-9] && mv "$out/new/$study.tar."* "$out/"
rm -rf "$out/new"
ls -l "$out"
exit $status
