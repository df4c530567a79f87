"""mini-swe-agent: an agent whose model is on Berth, with its commands in a container of Berth by SWE-ReX."""

import asyncio
import os

os.environ |= {"MSWEA_COST_TRACKING": "ignore_errors", "MSWEA_SILENT_STARTUP": "1", "MSWEA_CONFIGURED": "1"}

import httpx  # noqa: E402
from minisweagent.agents.default import DefaultAgent  # noqa: E402
from minisweagent.environments.extra.swerex_docker import SwerexDockerEnvironment  # noqa: E402
from minisweagent.models.litellm_model import LitellmModel  # noqa: E402
from pydantic import BaseModel  # noqa: E402
from swerex.deployment.remote import RemoteDeployment  # noqa: E402

from berth import base_url, call, job, main, scripted  # noqa: E402

SERVER = base_url.removesuffix("/v1")


class BerthConfig(BaseModel):
    url: str = SERVER
    key: str = "any"
    cwd: str = "/mnt/data"
    timeout: int = 30


class BerthEnvironment(SwerexDockerEnvironment):
    """A container of Berth in place of one of Docker. All else is mini-swe-agent's own."""

    def __init__(self, **options):
        self.config = BerthConfig(**options)
        self.http = httpx.Client(base_url=self.config.url, headers={"Authorization": f"Bearer {self.config.key}"},
                                 timeout=60)
        self.container = self.http.post("/v1/containers", json={"name": "mini-swe-agent"}).raise_for_status().json()["id"]
        self.deployment = RemoteDeployment(host=f"{self.config.url}/swerex/{self.container}",
                                           auth_token=self.config.key)
        asyncio.run(self.deployment.start())

    def stop(self):
        self.http.delete(f"/v1/containers/{self.container}")


@job("a bug found, mended, tested and submitted, in five steps")
def agent():
    environment = BerthEnvironment()
    try:
        solver = DefaultAgent(
            LitellmModel(model_name=f"openai/{scripted}", model_kwargs={"api_base": base_url, "api_key": "none"}),
            environment, system_template="You mend programs.", instance_template="{{task}}", step_limit=10)
        done = solver.run("".join(call("bash", command=command) for command in (
            "printf 'def high(port):\\n    return port == \"Brest\" or Tru\\n' > tides.py",
            "python3 -c 'import tides; tides.high(\"Roscoff\")'",
            "sed -i 's/Tru$/False/' tides.py && cat tides.py",
            "python3 -c 'import tides; print(tides.high(\"Roscoff\"), tides.high(\"Brest\"))'",
            "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT && cat tides.py")))
        assert done["exit_status"] == "Submitted", done
        assert done["submission"] == 'def high(port):\n    return port == "Brest" or False\n', done
        outputs = [m["extra"] for m in solver.messages if m["role"] == "tool"]
        assert outputs[1]["returncode"] == 1 and "NameError" in outputs[1]["raw_output"], outputs
        assert outputs[3]["raw_output"] == "False True\n", outputs
    finally:
        environment.stop()


if __name__ == "__main__":
    main()
