"""Encoders that embed, rank or classify: BERT, RoBERTa, ModernBERT, Nomic, GTE, CLIP and SigLIP. None keeps a cache.

Sources: configuration and modelling classes of transformers 5.24 and vLLM 0.33 (bert.py, roberta.py, modernbert.py,
bert_with_rope.py, clip.py, siglip.py), element counts of public files.
"""

from __future__ import annotations

from typing import Final, Literal

from kvplanner.model.config.fields import Fields, need_length
from kvplanner.model.config.parts import Parts
from kvplanner.model.config.patterns import FULL, SLIDING
from kvplanner.model.config.reading import Body, Draft, Heads, Reader, Reading, stack
from kvplanner.model.families.conversions import label_count
from kvplanner.model.spec import Attention, LayerSpec, Mlp, Moe, Task
from kvplanner.model.tensors import TensorGroup
from kvplanner.model.towers.kinds import clip_encoder, siglip_encoder
from kvplanner.model.towers.vision import Encoder, table
from kvplanner.record import NamedTuple

Head = Literal["pooler", "none", "words", "roberta words", "classes", "roberta classes", "token classes"]


def _seeing_all(heads: Heads, window: int | None = None) -> Attention:
    """Attention in both directions."""
    return Attention(heads.heads, heads.kv_heads, heads.head_size, heads.head_size, window=window, causal=False)


class Bert(NamedTuple):
    """BERT and what differs from it by what stands behind the layers.

    head: a pooler, nothing, the masked word's predictor, or a classifier. prefix: before every path of the encoder.
    """

    head: Head = "pooler"
    prefix: str = ""

    def __call__(self, reading: Reading) -> Draft:
        """Read a config of this family."""
        text, parts = reading.text, reading.parts
        rotary = text.text("position_embedding_type", allowed=("absolute", "rotary")) == "rotary"
        text.expect("is_decoder", False)
        text.expect("add_cross_attention", False)
        text.skip("classifier_dropout", "use_task_id", "task_type_vocab_size", "attn_type", "emb_pooler")
        hidden, vocab, layers = reading.hidden(), reading.vocab(), reading.layer_count()
        heads = reading.heads(hidden)
        width = text.need("intermediate_size")
        groups = parts.qkv("attention.self", hidden, *heads, bias=True, names=("query", "key", "value"))
        groups += parts.linear(
            "attention.output.dense", "attention", hidden, hidden, "row", bias=True, unit=heads.head_size
        )
        groups += parts.norm("attention.output.LayerNorm", hidden, bias=True)
        groups += parts.linear("intermediate.dense", "mlp", width, hidden, "column", bias=True)
        groups += parts.linear("output.dense", "mlp", hidden, width, "row", bias=True)
        groups += parts.norm("output.LayerNorm", hidden, bias=True)
        outside = _embeddings(reading, hidden, vocab, self.prefix, not rotary) + self._behind(reading, hidden, vocab)
        rank = _adapters(text)
        if rank:
            # Jina's embeddings v3: adapters for tasks on every matrix, which the engine adds to it as it loads.
            groups += _adapter(parts, rank, 3 * hidden + hidden, 2 * hidden, width + hidden, hidden + width)
            outside += _adapter(parts.at("last"), rank, vocab + hidden, text.need("type_vocab_size") + hidden,
                                2 * hidden)  # fmt: skip
        text.skip("max_position_embeddings")
        body = Body(LayerSpec((_seeing_all(heads),), (Mlp(width, 2),)), tuple(groups))
        task: Task = "classify" if "classes" in self.head else "embed"
        return Draft(hidden, vocab, (body,), (0,) * layers, outside, reading.tied(True), task=task)

    def _behind(self, reading: Reading, hidden: int, vocab: int) -> list[TensorGroup]:
        """What follows the layers."""
        last, prefix = reading.parts.at("last"), self.prefix
        pooler = last.linear(f"{prefix}pooler.dense", "other", hidden, hidden, bias=True)
        if self.head in ("pooler", "none"):
            return pooler if self.head == "pooler" else []
        if self.head == "words":
            path = "cls.predictions"
            groups = last.linear(f"{path}.transform.dense", "other", hidden, hidden, bias=True)
            groups += last.norm(f"{path}.transform.LayerNorm", hidden, bias=True)
            return [*groups, last.tensor(f"{path}.bias", "other", (vocab,))]
        if self.head == "roberta words":
            groups = last.linear("lm_head.dense", "other", hidden, hidden, bias=True)
            groups += last.norm("lm_head.layer_norm", hidden, bias=True)
            return [*groups, last.tensor("lm_head.bias", "other", (vocab,))]
        labels = label_count(reading.top)
        if self.head == "roberta classes":
            groups = last.linear("classifier.dense", "other", hidden, hidden, bias=True)
            return groups + last.linear("classifier.out_proj", "other", labels, hidden, bias=True)
        classes = last.linear("classifier", "other", labels, hidden, bias=True)
        return pooler + classes if self.head == "classes" else classes


def _adapters(text: Fields) -> int:
    """Rows of all adapters of a matrix: their rank for each task. Zero without any."""
    tasks = text.texts("lora_adaptations") or ()
    text.skip("lora_alpha", "lora_main_params_trainable", "load_trained_adapters", "matryoshka_dimensions",
              "task_instructions", "rotary_emb_base", "use_flash_attn", "use_reentrant", "truncate_dim",
              "adapter_kernel", "lora_rank", "lora_adaptations")  # fmt: skip
    return len(tasks) * text.need("lora_rank", high=1 << 12) if tasks else 0


def _adapter(parts: Parts, rank: int, *widths: int) -> list[TensorGroup]:
    """Both halves of each matrix's adapters; widths: its rows and columns together."""
    return [parts.tensor(f"lora.{i}", "other", (rank, width)) for i, width in enumerate(widths) if rank]


def _embeddings(reading: Reading, hidden: int, vocab: int, prefix: str = "", positions: bool = True,
                types: int | None = None) -> list[TensorGroup]:  # fmt: skip
    """Words, positions and segments."""
    text, first = reading.text, reading.parts.at("first")
    groups = [first.tensor(f"{prefix}embeddings.word_embeddings", "embedding", (vocab, hidden), "vocab")]
    if positions:
        rows = text.need("max_position_embeddings", high=1 << 24)
        groups.append(first.tensor(f"{prefix}embeddings.position_embeddings", "embedding", (rows, hidden)))
    segments = text.need("type_vocab_size", low=0, high=1 << 16) if types is None else types
    if segments:
        groups.append(first.tensor(f"{prefix}embeddings.token_type_embeddings", "embedding", (segments, hidden)))
    return groups + first.norm(f"{prefix}embeddings.LayerNorm", hidden, bias=True)


class Modern(NamedTuple):
    """ModernBERT: windows in two of three layers, a gated feed-forward, no positions to learn."""

    head: Literal["none", "classes", "words"] = "none"

    def __call__(self, reading: Reading) -> Draft:
        """Read a config of this family."""
        text, parts = reading.text, reading.parts
        text.skip("decoder_bias", "deterministic_flash_attn", "embedding_size", "repad_logits_with_grad",
                  "sparse_prediction", "global_rope_theta", "local_rope_theta", "classifier_pooling",
                  "position_embedding_type", "causal_mask", "layer_norm_eps")  # fmt: skip
        hidden, vocab, layers = reading.hidden(), reading.vocab(), reading.layer_count()
        heads, width = reading.heads(hidden), text.need("intermediate_size")
        bias, mlp_bias = text.flag("attention_bias", default=False), text.flag("mlp_bias", default=False)
        norm_bias, window = text.flag("norm_bias", default=False), text.get("local_attention", default=128)

        def make(key: tuple[str, bool]) -> Body:
            kind, first = key
            groups = parts.qkv("attn", hidden, *heads, bias=bias, names=("Wqkv",) * 3)
            groups += parts.linear("attn.Wo", "attention", hidden, hidden, "row", bias=bias, unit=heads.head_size)
            groups += parts.mlp("mlp", hidden, width, bias=mlp_bias, names=("Wi", "Wi", "Wo"))
            for name in ("mlp_norm",) if first else ("mlp_norm", "attn_norm"):
                groups += parts.norm(name, hidden, bias=norm_bias)
            attention = _seeing_all(heads, window if kind == SLIDING else None)
            return Body(LayerSpec((attention,), (Mlp(width),)), tuple(groups))

        bodies, body_of = stack([(kind, i == 0) for i, kind in enumerate(_modern_kinds(text, layers))], make)
        first, last = parts.at("first"), parts.at("last")
        outside = [first.tensor("embeddings.tok_embeddings", "embedding", (vocab, hidden), "vocab")]
        outside += first.norm("embeddings.norm", hidden, bias=norm_bias)
        outside += last.norm("final_norm", hidden, bias=norm_bias)
        if self.head != "none":
            outside += last.linear("head.dense", "other", hidden, hidden,
                                   bias=text.flag("classifier_bias", default=False))  # fmt: skip
            outside += last.norm("head.norm", hidden, bias=norm_bias)
        if self.head == "classes":
            outside += last.linear("classifier", "other", label_count(reading.top), hidden, bias=True)
        text.skip("classifier_bias")
        task: Task = "classify" if self.head == "classes" else "embed"
        return Draft(hidden, vocab, bodies, body_of, outside, reading.tied(True), task=task)


def _modern_kinds(text: Fields, layers: int) -> tuple[str, ...]:
    """`layer_types`, or full attention in each n-th layer from the first on."""
    given = text.texts("layer_types", allowed=(FULL, SLIDING))
    step = text.maybe("global_attn_every_n_layers", high=1 << 12)
    if given is not None:
        need_length(text, "layer_types", given, layers)
        return given
    if step is None:
        text.took_default("global_attn_every_n_layers")
    return tuple(SLIDING if i % (step or 3) else FULL for i in range(layers))


def _nomic(reading: Reading) -> Draft:
    """Nomic's BERT with rotary positions: GPT-2's names in its first form; v2 has experts in each second layer."""
    text, parts = reading.text, reading.parts
    text.skip("n_positions", "rotary_emb_fraction", "rotary_emb_base", "rotary_emb_interleaved",
              "rotary_emb_scale_base",
              "fused_bias_fc", "fused_dropout_add_ln", "use_flash_attn", "use_xentropy", "prenorm", "parallel_block",
              "parallel_block_tied_norm", "max_trained_positions", "pad_vocab_size_multiple", "expert_choice_router",
              "ffn_div", "moe_impl", "moe_resid_pdrop", "num_shared_experts", "router_aux_loss_coef", "bias",
              "head_dim",
              "shared_experts_width", "causal", "last_layer_subset", "dense_seq_output", "add_pooling_layer",
              "moe_normalize_expert_weights", "position_embedding_type")  # fmt: skip
    hidden = text.need("n_embd", "hidden_size", high=1 << 24)
    layers, vocab = reading.layer_count("n_layer", "num_hidden_layers"), reading.vocab()
    heads = reading.heads(hidden, heads=("n_head", "num_attention_heads"))
    width = text.maybe("n_inner", "intermediate_size") or 4 * hidden
    gated = text.values.get("activation_function", text.values.get("hidden_act", "swiglu")) in ("swiglu", "silu", "glu")
    text.skip("activation_function")
    bias, up = text.flag("qkv_proj_bias", default=False), text.flag("mlp_fc1_bias", default=False)
    down, step = text.flag("mlp_fc2_bias", default=False), text.maybe("moe_every_n_layers", low=0, high=64) or 0
    count = text.maybe("num_experts", low=0, high=1 << 12) or 0
    # Asked for with experts alone: every older config states how transformers samples, under a name much like it.
    top_k = (text.maybe("moe_top_k", high=1 << 12) or 1) if count else 1

    def make(sparse: bool) -> Body:
        groups = parts.qkv("attn", hidden, *heads, bias=bias, names=("Wqkv",) * 3)
        groups += parts.linear("attn.out_proj", "attention", hidden, hidden, "row", bias=bias, unit=heads.head_size)
        mlp: Mlp | Moe = Mlp(width, 3 if gated else 2)
        if sparse:
            groups += parts.router("mlp.router.layer", count, hidden)
            groups += parts.experts("mlp.experts.mlp", count, hidden, width, matrices=2, names=("", "w1", "w2"))
            groups.append(parts.tensor("mlp.experts.bias", "other", (hidden,)))
            mlp = Moe(count, top_k, width, matrices=2)
        else:
            for name in ("fc11", "fc12") if gated else ("fc1",):
                groups += parts.linear(f"mlp.{name}", "mlp", width, hidden, "column", bias=up,
                                       fused="gate_up_proj" if gated else "")  # fmt: skip
            groups += parts.linear("mlp.fc2", "mlp", hidden, width, "row", bias=down)
        for name in ("norm1", "norm2"):
            groups += parts.norm(name, hidden, bias=True)
        return Body(LayerSpec((_seeing_all(heads),), (mlp,)), tuple(groups))

    bodies, body_of = stack([bool(step and count and i % step == 1) for i in range(layers)], make)
    outside = _embeddings(reading, hidden, vocab, positions=False)
    return Draft(hidden, vocab, bodies, body_of, outside, reading.tied(True), task="embed")


class Gte(NamedTuple):
    """GTE's own BERT with rotary positions; head: a pooler and a classifier behind it."""

    head: bool = False

    def __call__(self, reading: Reading) -> Draft:
        """Read a config of this family."""
        text, parts = reading.text, reading.parts
        text.skip("pack_qkv", "unpad_inputs", "use_memory_efficient_attention", "logn_attention_scale", "head_dim",
                  "logn_attention_clip1", "layer_norm_type", "classifier_dropout")  # fmt: skip
        text.expect("position_embedding_type", "rope")
        hidden, vocab, layers = reading.hidden(), reading.vocab(), reading.layer_count()
        heads, width = reading.heads(hidden), text.need("intermediate_size")
        groups = parts.qkv("attention", hidden, *heads, bias=True, names=("qkv_proj",) * 3)
        groups += parts.linear("attention.o_proj", "attention", hidden, hidden, "row", bias=True, unit=heads.head_size)
        groups += parts.mlp("mlp", hidden, width, names=("up_gate_proj", "up_gate_proj", "down_proj"))
        groups.append(parts.tensor("mlp.down_proj.bias", "mlp", (hidden,)))
        for name in ("attn_ln", "mlp_ln"):
            groups += parts.norm(name, hidden, bias=True)
        body = Body(LayerSpec((_seeing_all(heads),), (Mlp(width),)), tuple(groups))
        types = text.get("type_vocab_size", default=0, low=0, high=1 << 16)
        outside, last = _embeddings(reading, hidden, vocab, positions=False, types=types), parts.at("last")
        if self.head:
            outside += last.linear("pooler.dense", "other", hidden, hidden, bias=True)
            outside += last.linear("classifier", "other", label_count(reading.top), hidden, bias=True)
        tied = reading.tied(True)
        return Draft(hidden, vocab, (body,), (0,) * layers, outside, tied, task="classify" if self.head else "embed")


def _two_towers(reading: Reading) -> Draft:
    """CLIP and SigLIP: a text encoder, an image encoder, and projections into one space."""
    top, text, parts = reading.top, reading.text, reading.parts
    clip = reading.architecture.startswith("CLIP")
    text.skip("projection_dim", "projection_size", "hidden_act")
    top.skip("projection_dim", "text_config_dict", "vision_config_dict")
    hidden, vocab, layers = reading.hidden(), reading.vocab(), reading.layer_count()
    heads, width = reading.heads(hidden), text.need("intermediate_size")
    layer = Encoder().layers(parts.at("layer"), "encoder.layers", 1, hidden, width)
    groups = [
        g._replace(kind="norm" if "norm" in g.path else "mlp" if ".mlp." in g.path else "attention") for g in layer
    ]
    # vLLM gives CLIP's words causal attention, with a cache, and SigLIP's none.
    attention = _seeing_all(heads)._replace(causal=clip)
    body = Body(LayerSpec((attention,), (Mlp(width, 2),)), tuple(groups))
    first, last = parts.at("first"), parts.at("last")
    rows = text.need("max_position_embeddings", high=1 << 24)
    outside = [first.tensor("text_model.embeddings.token_embedding", "embedding", (vocab, hidden), "vocab"),
               first.tensor("text_model.embeddings.position_embedding", "embedding", (rows, hidden))]  # fmt: skip
    outside += last.norm("text_model.final_layer_norm", hidden, bias=True)
    vision = top.sub("vision_config")
    if vision is None:
        raise top.missing("vision_config")
    tower = parts.at("tower")
    if clip:
        out = top.get("projection_dim", default=512, high=1 << 20)
        seen = clip_encoder(vision, tower, "vision_model")
        outside += last.linear("text_projection", "other", out, hidden)
        more = [*tower.linear("visual_projection", "tower", out, seen.size), table(tower, "logit_scale", 1)]
    else:
        out = text.maybe("projection_size", high=1 << 20) or hidden
        head = vision.values.get("vision_use_head", True)
        seen = siglip_encoder(_with_head(vision, head), tower, "vision_model")
        outside += last.linear("text_model.head", "other", out, hidden, bias=True)
        more = [table(tower, "logit_scale", 1), table(tower, "logit_bias", 1)]
    vision.skip(*vision.values)
    towers, tensors = seen.tower(more, seen.patches)
    return Draft(hidden, vocab, (body,), (0,) * layers, [*outside, *tensors], False, tuple(towers), task="embed")


def _with_head(fields: Fields, head: object) -> Fields:
    """SigLIP on its own keeps its pooling head unless the config says otherwise."""
    return Fields({**fields.values, "vision_use_head": head}, fields.where, fields.path, fields.defaulted, fields.kind)


READERS: Final[dict[str, Reader]] = {
    **dict.fromkeys(("BertModel", "XLMRobertaModel", "RobertaModel", "ErnieModel"), Bert()),
    **dict.fromkeys(("BertForMaskedLM", "BertSpladeSparseEmbeddingModel", "ErnieForMaskedLM"), Bert("words", "bert.")),
    **dict.fromkeys(("RobertaForMaskedLM", "XLMRobertaForMaskedLM"), Bert("roberta words", "roberta.")),
    "BgeM3EmbeddingModel": Bert(),
    **dict.fromkeys(("BertForSequenceClassification", "ErnieForSequenceClassification"), Bert("classes", "bert.")),
    **dict.fromkeys(("RobertaForSequenceClassification", "XLMRobertaForSequenceClassification"),
                    Bert("roberta classes", "roberta.")),
    **dict.fromkeys(("BertForTokenClassification", "ErnieForTokenClassification"), Bert("token classes", "bert.")),
    **dict.fromkeys(("RobertaForTokenClassification", "XLMRobertaForTokenClassification"),
                    Bert("token classes", "roberta.")),
    "ModernBertModel": Modern(),
    "ModernBertForMaskedLM": Modern("words"),
    **dict.fromkeys(("ModernBertForSequenceClassification", "ModernBertForTokenClassification"), Modern("classes")),
    "NomicBertModel": _nomic,
    **dict.fromkeys(("GteModel", "GteNewModel"), Gte()),
    "GteNewForSequenceClassification": Gte(head=True),
    **dict.fromkeys(("CLIPModel", "SiglipModel"), _two_towers),
}  # fmt: skip
