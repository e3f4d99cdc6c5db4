"""The encoder of all-MiniLM-L6-v2 in plain torch: the class file that goes into its model folder.

Parts are named as in the published weights, hence the dictionaries of modules.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class SentenceEncoder(nn.Module):  # type: ignore[misc]
    """BERT with mean pooling: token ids and attention mask to embeddings of length one."""

    def __init__(
        self, words: int = 30522, width: int = 384, inner: int = 1536, heads: int = 12, layers: int = 6
    ) -> None:
        super().__init__()
        self.heads = heads
        self.embeddings = nn.ModuleDict(
            {
                "word_embeddings": nn.Embedding(words, width),
                "position_embeddings": nn.Embedding(512, width),
                "token_type_embeddings": nn.Embedding(2, width),
                "LayerNorm": nn.LayerNorm(width, eps=1e-12),
            }
        )
        self.embeddings.register_buffer("position_ids", torch.arange(512)[None])
        self.encoder = nn.ModuleDict({"layer": nn.ModuleList(_layer(width, inner) for _ in range(layers))})
        self.pooler = nn.ModuleDict({"dense": nn.Linear(width, width)})

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> dict[str, Tensor]:
        """Embeddings of [rows, tokens] ids."""
        parts = self.embeddings
        positions = parts["position_embeddings"].weight[: input_ids.shape[1]]
        hidden = parts["word_embeddings"](input_ids) + positions + parts["token_type_embeddings"].weight[0]
        hidden = parts["LayerNorm"](hidden)
        attended = attention_mask[:, None, None, :] > 0
        for layer in self.encoder["layer"]:
            hidden = self._run(layer, hidden, attended)
        mask = attention_mask[..., None].to(hidden.dtype)
        mean = (hidden * mask).sum(1) / mask.sum(1).clamp(min=1e-9)
        return {"embedding": functional.normalize(mean, dim=1)}

    def _run(self, layer: nn.ModuleDict, hidden: Tensor, attended: Tensor) -> Tensor:
        attention = layer["attention"]
        query, key, value = (self._split(attention["self"][name](hidden)) for name in ("query", "key", "value"))
        scores = query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5
        weights = scores.masked_fill(~attended, torch.finfo(scores.dtype).min).softmax(-1)
        mixed = (weights @ value).transpose(1, 2).flatten(2)
        output = attention["output"]
        hidden = output["LayerNorm"](output["dense"](mixed) + hidden)
        inner = functional.gelu(layer["intermediate"]["dense"](hidden))
        return layer["output"]["LayerNorm"](layer["output"]["dense"](inner) + hidden)

    def _split(self, value: Tensor) -> Tensor:
        return value.unflatten(-1, (self.heads, -1)).transpose(1, 2)


def _layer(width: int, inner: int) -> nn.ModuleDict:
    attention = nn.ModuleDict({name: nn.Linear(width, width) for name in ("query", "key", "value")})
    return nn.ModuleDict(
        {
            "attention": nn.ModuleDict({"self": attention, "output": _added(width, width)}),
            "intermediate": nn.ModuleDict({"dense": nn.Linear(width, inner)}),
            "output": _added(inner, width),
        }
    )


def _added(width: int, out: int) -> nn.ModuleDict:
    return nn.ModuleDict({"dense": nn.Linear(width, out), "LayerNorm": nn.LayerNorm(out, eps=1e-12)})
