# SPDX-License-Identifier: Apache-2.0
"""The folder of a provider: policy files and tables, and what was typed about each.

All that is kept is in the folder: policies, the ledgers beside their sources, and the lines that
``serving.py`` keeps of a running server. So a workbench that is stopped or killed goes on where it was.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import typer

from pinq.cli.prepare import dialect_of
from pinq.errors import PolicyError
from pinq.provider.policy_file import parse_policy
from pinq.provider.proposal import propose
from pinq_workbench.parts import Draft

TABLES = (".csv", ".tsv", ".parquet", ".xlsx", ".xls", ".ods", ".duckdb")
DIALECT = {
    "delimiter": "Between fields (delimiter)",
    "decimal": "Before decimals (decimal)",
    "thousands": "Between thousands (thousands)",
    "dates": "Dates, as %d.%m.%Y (dates)",
    "encoding": "Encoding (encoding)",
    "sheet": "Sheet of a workbook (sheet)",
    "skip": "Title lines above the header (skip)",
}


@dataclass
class Folder:
    """A folder of policies.

    Attributes:
        path: Where policies and tables are.
        drafts: What was typed, by policy file.
    """

    path: Path
    drafts: dict[str, Draft] = field(default_factory=dict)

    def draft(self, name: str) -> Draft:
        """What was typed about a policy."""
        return self.drafts.setdefault(name, {})

    def policies(self) -> list[str]:
        """The policy files of the folder, by name."""
        return sorted(file.name for file in self.path.iterdir() if file.suffix in (".yaml", ".yml"))

    def tables(self) -> list[str]:
        """What looks like a table there, by name."""
        return sorted(file.name for file in self.path.iterdir() if file.name.lower().endswith(TABLES))

    def file(self, name: str) -> Path:
        """The policy file of a page. Raises ``PolicyError`` if the folder has none of this name."""
        if name not in self.policies():
            raise PolicyError(f"There is no policy {name} in {self.path}.")
        return self.path / name

    def propose(self, draft: Draft) -> str:
        """Writes a proposal beside the others; returns its name. Errors as in ``propose``."""
        data, stated = str(draft.get("data") or ""), {key: draft[key] for key in DIALECT if draft.get(key)}
        if not data:
            raise PolicyError("Choose a table first, or write where it is.")
        uri_env = draft.get("uri_env") or None
        place = data if uri_env or Path(data.split("::")[0]).is_absolute() else str(self.path / data)
        try:
            csv = dialect_of(**stated)
        except typer.BadParameter as error:
            raise PolicyError(error.message) from None
        text = propose(place, target=draft.get("target") or None, folder=self.path, csv=csv, uri_env=uri_env)
        name = f"{parse_policy(text, self.path / 'proposed').dataset}.yaml"
        with (self.path / name).open("x", encoding="utf-8") as file:
            file.write(text)
        return name

    def links(self, name: str = "") -> dict[str, str]:
        """The pages of the folder and, with a name, of a policy."""
        own = {"Review": f"/policy/{name}", "Grants": f"/policy/{name}/grants", "Log": f"/policy/{name}/log"}
        return {"Datasets": "/", "Serve": "/serve"} | (own if name else {})
