#!/bin/sh
# One stretch of a study, for a machine that is lent for minutes and keeps nothing:
#     sh studies/summarization/stretch.sh STUDY DATA MINUTES OUT [key=value ...]
# STUDY   scitldr or defacto: a config beside this script
# DATA    folder of STUDY_train.jsonl and the held-out file, as published
# OUT     folder that is carried back, and here again for the next stretch: STUDY.tar.00, .01, ... of 15 MiB at most
# Ends with the status of `text2grad compare`: 0 done, 75 not yet, 1 a run failed. FOLDER, FROM and TEXT2GRAD may be set.
set -eu
study=$1 data=$2 minutes=$3 out=$4
shift 4
folder=${FOLDER:-runs}
from=${FROM:-$out}
case $study in
    scitldr) held=scitldr_dev.jsonl ;;
    *) held=${study}_val.jsonl ;;
esac

mkdir -p "$folder" "$out"
if [ ! -d "$folder/$study" ] && [ -f "$from/$study.tar.00" ]; then
    cat "$from/$study.tar."[0-9][0-9] | tar -xzf - -C "$folder"
fi
status=0
${TEXT2GRAD:-text2grad} compare "$folder/$study" --config "$(dirname "$0")/$study.yaml" --minutes "$minutes" \
    "settings.data=$data/${study}_train.jsonl" "settings.held_out=$data/$held" "$@" || status=$?

# What the next machine needs: the finished runs, the model that the others start from, and the table for people.
rm -f "$out/$study.tar."[0-9][0-9]
(
    cd "$folder"
    find "$study" -type f \( -name 'seed-*.done' -o -path "$study/sft/seed-*/model/*" -o -name 'seed-*.log' \)
    find "$study" -maxdepth 1 -type f \( -name '*.json' -o -name report.html \)
) | tar -czf - -C "$folder" -T - | split -b 15m -d -a 2 - "$out/$study.tar."
ls -l "$out"
exit $status
