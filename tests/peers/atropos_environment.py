"""RolloutGym's environment class as Atropos runs it; the inference server speaks vLLM's wire and draws at random.

Reads `{"service", "environment", "atropos", "tokenizer"}`; writes scores, what was sampled, the evaluation's metrics.
"""

import asyncio
import json
import random
import socket
import sys
import tempfile
from pathlib import Path
from typing import Any

from aiohttp import web
from atroposlib.envs.base import APIServerConfig

from rolloutgym.training.atropos_environment import RolloutGymConfig, RolloutGymEnv

GROUPS = 3


def inference(end_of_turn: int, sampled: list[Any], letters: range) -> web.Application:
    async def generate(request: web.Request) -> web.Response:
        body = await request.json()
        assert body["n"] == 1
        ids = [random.choice(letters) for _ in range(random.randrange(1, 5))] + [end_of_turn]
        sampled.append({"prompt": body["prompt"]["prompt_token_ids"], "ids": ids})
        logprobs = [[{str(token): -0.5}] for token in ids]
        return web.json_response({"logprobs": [logprobs], "finish_reasons": ["stop"]})

    application = web.Application(client_max_size=2**26)
    application.router.add_post("/generate", generate)
    return application


async def main(work: dict[str, Any], evaluations: str) -> dict[str, Any]:
    sampled: list[Any] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:
        config = RolloutGymConfig(
            tokenizer_name=work["tokenizer"],
            group_size=2,
            use_wandb=False,
            rollout_server_url=work["atropos"],
            max_token_length=4000,
            ensure_scores_are_not_same=False,  # so that every group comes through
            include_messages=True,
            data_dir_to_save_evals=evaluations,
            service_url=work["service"],
            environment=work["environment"],
            turn_tokens=8,
            reply_tokens=64,
            eval_tasks=2,
            outcome_weight=1.0,
        )
        server = APIServerConfig(
            model_name="tiny",
            tokenizer_name=work["tokenizer"],
            base_url=f"http://127.0.0.1:{listening.getsockname()[1]}/v1",
            api_key="none",
            server_type="vllm",
            health_check=False,
        )
        environment = RolloutGymEnv(config, [server])
        end_of_turn = environment.tokenizer.convert_tokens_to_ids("<|im_end|>")
        runner = web.AppRunner(inference(end_of_turn, sampled, range(60, 90)))
        await runner.setup()
        await web.SockSite(runner, listening).start()
        await environment.setup()
        await environment.register_env()
        await environment.get_server_info()
        groups = []
        for number in range(GROUPS):
            item = await environment.get_next_item()
            environment.running_items[str(number)] = {"item": item}
            group = await environment.handle_env(str(number))
            groups.append(group["scores"])
        training = len(sampled)
        await environment.evaluate()
        await runner.cleanup()
        environment._environment.close()
    return {"scores": groups, "sampled": sampled[:training]}


if __name__ == "__main__":
    out, sys.stdout = sys.stdout, sys.stderr  # Atropos prints
    with tempfile.TemporaryDirectory() as folder:
        found = asyncio.run(main(json.load(sys.stdin), folder))
        found["metrics"] = json.loads(Path(folder, "metrics.json").read_text())
    json.dump(found, out)
