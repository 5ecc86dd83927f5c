"""A tree of folders with text files. Paths are absolute, parts joined by '/'; there is nothing but this tree."""

from typing import ClassVar

from pydantic import JsonValue

from rolloutgym.server.environments.toolcall.backends.domain import MAX_RECORDS, Domain, Record, ToolError, text, tool

PATH = {"type": "string", "description": "Absolute path, such as /reports/2025.", "minLength": 1, "maxLength": 200}


class FilesState(Record):
    files: dict[str, str]
    """Text by path."""
    folders: list[str]
    """Paths, sorted; the root '/' is always there and not among them."""


class Files(Domain[FilesState]):
    name: ClassVar[str] = "files"
    state_type: ClassVar[type[Record]] = FilesState

    @tool("List the files and folders in a folder.", path=PATH)
    def list_folder(self, path: str) -> JsonValue:
        folder = self._folder(path)
        return {
            "path": folder,
            "folders": [name for name in self.state.folders if _parent(name) == folder],
            "files": [name for name in sorted(self.state.files) if _parent(name) == folder],
        }

    @tool("The text of a file.", path=PATH)
    def read_file(self, path: str) -> JsonValue:
        return {"path": path, "text": self.state.files[self._file(path)]}

    @tool("Write a new text file. Refused if there is one already.", path=PATH, text=text("What it shall hold.", 2000))
    def write_file(self, path: str, text: str) -> JsonValue:
        self._refuse_taken(path)
        self.state.files[path] = text
        return {"status": "written", "path": path}

    @tool("Make a new folder.", path=PATH)
    def create_folder(self, path: str) -> JsonValue:
        self._refuse_taken(path)
        self.state.folders.append(path)
        self.state.folders.sort()
        return {"status": "created", "path": path}

    @tool(
        "Move or rename a file.",
        source={**PATH, "description": "Path of the file."},
        destination={**PATH, "description": "Its new path, file name included."},
    )
    def move_file(self, source: str, destination: str) -> JsonValue:
        self._file(source)
        self._refuse_taken(destination)
        self.state.files[destination] = self.state.files.pop(source)
        return {"status": "moved", "source": source, "destination": destination}

    @tool("Delete a file for good.", path=PATH)
    def delete_file(self, path: str) -> JsonValue:
        del self.state.files[self._file(path)]
        return {"status": "deleted", "path": path}

    def _file(self, path: str) -> str:
        if path not in self.state.files:
            raise ToolError(f"there is no file '{path}'")
        return path

    def _folder(self, path: str) -> str:
        folder = path.rstrip("/") or "/"
        if folder != "/" and folder not in self.state.folders:
            raise ToolError(f"there is no folder '{path}'")
        return folder

    def _refuse_taken(self, path: str) -> None:
        parts = path.split("/")
        if parts[0] or len(parts) < 2 or any(part in ("", ".", "..") for part in parts[1:]):
            raise ToolError(f"'{path}' is not an absolute path")
        if path in self.state.files or path in self.state.folders:
            raise ToolError(f"'{path}' is already there")
        if len(self.state.files) + len(self.state.folders) >= MAX_RECORDS:
            raise ToolError("the disk is full")
        self._folder(_parent(path))


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"
