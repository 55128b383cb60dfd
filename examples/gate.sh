#!/bin/sh
# A step of a CI pipeline that stands on `understudy certify --gate`. In GitHub Actions:
#
#   - name: May the policy be promoted?
#     run: sh examples/gate.sh later.parquet learned/policy.json
#
# The step passes if the policy is certified to be better than production, and fails otherwise. It
# keeps the decision in verdict.json (docs/certify.schema.json describes it).
set -u
if [ "$#" -ne 2 ]; then
  echo "usage: gate.sh LOG POLICY" >&2
  exit 2
fi
understudy certify "$1" --policy "$2" --gate --json > verdict.json
decision=$?
case "$decision" in
  0) echo "promote: begin the ramp" ;;
  3) echo "not decided: production stays, and goes on logging" ;;
  4) echo "worse, or a guardrail broken: the policy is not rolled out" ;;
  *) echo "the gate itself failed with exit code $decision" ;;
esac
exit "$decision"
