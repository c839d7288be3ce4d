"""The pocket-VL: a small target that sees drawn scenes, its projector and its drafter, and how they are made.

    torchrun --nproc-per-node 2 -m benchmarks.pocket_vl.train_target POCKET_DIR begun --minutes 60 --tower 6
    torchrun --nproc-per-node 2 -m benchmarks.pocket_vl.train_target POCKET_DIR seeing --minutes 40 --tower 0 \\
        --init begun --stage 3 --seed 200000000
    torchrun --nproc-per-node 2 -m benchmarks.pocket_vl.train_target POCKET_DIR vl --minutes 20 --tower 0 \\
        --init seeing --stage 4 --seed 400000000
    python -m benchmarks.pocket_vl.target_files vl files
    python -m benchmarks.pocket_vl.accuracy files/pocket-vl.gguf files/pocket-vl-mmproj.gguf POCKET_DIR
    python -m benchmarks.pocket_vl.scene_prompts scenes.jsonl --chats 1200
    python -m benchmarks.pocket_vl.scene_prompts words.jsonl --chats 500 --pocket POCKET_DIR
    dflash-local train -m files/pocket-vl.gguf -mm files/pocket-vl-mmproj.gguf --init pocket-dflash-small.gguf \\
        --data scenes.jsonl --data words.jsonl --outtype f16 --draft-vocab 0 --minutes 15 -o pocket-vl-dflash.gguf

POCKET_DIR is the folder with the recipe of the pocket pairs. `scenes.py` draws the scenes and knows the true answers.
The files in dflash_local/demo were made so, the first run in parts: in between, the tower's last matrices were fitted
anew to embeddings that had changed, by a ridge regression that is not part of the recipe. Of questions about held-out
scenes, 92% are answered with exactly the true words (least: what differs between two pictures, 44%).
"""
