"""What docs/site adds to the build: pages of files that are linked to, and a look at what pages fetch."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

ROOT = Path(__file__).parents[2]
SITE = ROOT / "docs" / "site"


@pytest.fixture
def links(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(SITE)
    return importlib.import_module("repository_links")


@pytest.fixture
def outside_hosts(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(SITE)
    return importlib.import_module("outside_hosts")


def turned(links: ModuleType, uri: str, markdown: str) -> str:
    page = SimpleNamespace(file=SimpleNamespace(src_uri=uri))
    return str(links.on_page_markdown(markdown, page, None, None))


def test_a_link_within_the_docs_stays_as_it_is(links: ModuleType) -> None:
    markdown = "[schedules](schedules.md#once) and [data](../how-to/data.md)"

    assert turned(links, "how-to/recipes.md", markdown).count("schedules.md#once") == 1
    assert "(data.md)" in turned(links, "how-to/recipes.md", markdown)


def test_a_link_to_a_file_outside_leads_to_its_page(links: ModuleType) -> None:
    markdown = "[GAN](../../examples/gan.py)"

    assert turned(links, "how-to/published-trainings.md", markdown) == "[GAN](../source/examples/gan.py.md)"


def test_a_link_of_a_page_outside_leads_back_into_the_docs(links: ModuleType) -> None:
    assert turned(links, "source/README.md", "[data](docs/how-to/data.md)") == "[data](../how-to/data.md)"


def test_the_picture_of_a_page_outside_is_found(links: ModuleType) -> None:
    html = '<img src="docs/explanation/benchmarks/loop.png">'

    assert turned(links, "source/README.md", html) == '<img src="../explanation/benchmarks/loop.png">'


def test_a_link_that_leads_nowhere_stays_so_that_the_build_refuses_it(links: ModuleType) -> None:
    assert turned(links, "how-to/data.md", "[x](../../examples/none.py)") == "[x](../../examples/none.py)"


@pytest.mark.parametrize(
    "path", ["examples/gan.py", "examples", "README.md", "LICENSE", "notebooks/01_first_training.ipynb"]
)
def test_a_page_of_a_file_knows_its_file(links: ModuleType, path: str) -> None:
    assert links.in_repository(links.site_uri(path)) == path


def test_the_page_of_a_folder_lists_its_files(links: ModuleType) -> None:
    assert "- [examples/gan.py](examples/gan.py)" in links.text_of("examples")


def test_the_page_of_a_notebook_has_its_text_and_its_code(links: ModuleType) -> None:
    text = links.text_of("notebooks/01_first_training.ipynb")

    assert text.startswith("# A first training")
    assert "```python\nimport torch" in text


def test_a_page_that_fetches_from_another_host_is_seen(outside_hosts: ModuleType) -> None:
    for fetching in (
        '<script src="https://a.b/c.js">',
        '<link rel="stylesheet" href="//a.b/c.css">',
        "<img src=http://a.b/c>",
    ):
        assert len(outside_hosts.fetched(fetching)) == 1


def test_a_link_to_another_host_fetches_nothing(outside_hosts: ModuleType) -> None:
    assert (
        outside_hosts.fetched('<a href="https://a.b/c">c</a> <img src="../c.png"> <link rel="next" href="https://a.b">')
        == []
    )


def test_every_page_is_in_the_navigation() -> None:
    listed = (ROOT / "mkdocs.yml").read_text()
    pages = [page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")]

    assert [page for page in pages if f" {page}\n" not in listed] == []


def test_the_list_for_language_models_has_every_page_in_a_line() -> None:
    text = (ROOT / "docs" / "llms.txt").read_text()
    listed = re.findall(r"^- \[.+?\]\((.+?)\)", text, re.MULTILINE)

    assert sorted(listed) == sorted(
        page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")
    )
    assert len(text.splitlines()) < 300


def test_the_list_of_the_site_leads_to_its_pages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(SITE)
    llms = importlib.import_module("llms")
    page = SimpleNamespace(file=SimpleNamespace(src_uri="how-to/data.md"), url="how-to/data/", markdown="# Data")
    config = {"site_name": "S", "site_description": "D", "site_dir": tmp_path, "docs_dir": ROOT / "docs"}
    llms.on_nav(SimpleNamespace(pages=[page]), None, None)
    llms.on_post_build(SimpleNamespace(**config))

    assert "](how-to/data/index.html): " in (tmp_path / "llms.txt").read_text()
    assert (tmp_path / "llms-full.txt").read_text().endswith("# Data")


def test_an_example_of_a_docstring_is_shown_as_code(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("griffe", reason="make docs installs it")
    monkeypatch.syspath_prepend(SITE)

    text = importlib.import_module("doctests").fenced("Add.\n\n>>> 1 + 1\n2\n\nArgs:\n    x: one.")

    assert text == "Add.\n\n```pycon\n>>> 1 + 1\n2\n```\n\nArgs:\n    x: one."


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "README.md", "docs"])
def test_a_block_is_one_for_the_site_too(page: str) -> None:
    path = ROOT / page
    lines = [
        line for file in (path.rglob("*.md") if path.is_dir() else [path]) for line in file.read_text().splitlines()
    ]
    fences = [line for line in lines if line.lstrip().startswith("```")]

    assert [fence for fence in fences if not re.fullmatch(r"(?: {4})*```\w*", fence)] == []


SEARCHED = {  # and the page that must be among the results; None where any page may be
    "argparse": None,
    "callback": "how-to/coming-from.md",
    "callbacks": "how-to/coming-from.md",
    "csv": "how-to/coming-from.md",
    "freeze for two epochs": "how-to/recipes.md",
    "gradient accumulation": "how-to/recipes.md",
    "learning rate": "how-to/change-between-epochs.md",
    "confusion matrix": "how-to/look-into-a-training.md",
    "f1": "how-to/metrics.md",
    "hydra": None,
    "log scale": "how-to/report.md",
    "mlflow": "how-to/logging.md",
    "multi gpu": "how-to/many-ranks.md",
    "optuna": None,
    "padding": "how-to/text.md",
    "variable length": "how-to/text.md",
    "collate_fn": "how-to/text.md",
    "tensorboard": "how-to/logging.md",
    "toml": "tutorials/learner-from-files.md",
    "simclr": "reference/learner-files.md",
    "wandb": "how-to/logging.md",
}


def words(text: str) -> set[str]:
    """The words that the search of the site makes of a text."""
    separator = re.findall(r"^      separator: '(.*?)'  #", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)[0]
    return {word.lower() for word in re.split(separator, re.sub(r"[`*|\n;]", " ", text)) if word}


def found(query: str) -> set[str]:
    """The pages with a section that has all words of a query; the search takes a section for a document."""
    pages = {page.relative_to(ROOT / "docs").as_posix(): page.read_text() for page in (ROOT / "docs").rglob("*.md")}
    sections = [(page, part) for page, text in pages.items() for part in re.split(r"^#+ ", text, flags=re.MULTILINE)]
    return {page for page, part in sections if words(query) <= words(part)}


@pytest.mark.parametrize("query", SEARCHED)
def test_a_search_finds_what_visitors_look_for(query: str) -> None:
    page = SEARCHED[query]

    assert found(query) if page is None else page in found(query)


WIDEST = 88  # columns; the theme has room for them on a desktop
CODE = re.compile(r"^( *)```(python|pycon|sh|shell|console|toml)\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))], ids=lambda page: str(page.relative_to(ROOT))
)
def test_no_line_of_code_is_cut_on_a_desktop(page: Path) -> None:
    code = [(language, line) for _, language, text in CODE.findall(page.read_text()) for line in text.splitlines()]
    typed = [line for language, line in code if language != "console" or line.startswith("$ ")]  # an output scrolls

    assert [line for line in typed if len(line) > WIDEST] == []
