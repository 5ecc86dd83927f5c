"""RolloutGym: verifiable-reward environments for language models, served over HTTP."""
