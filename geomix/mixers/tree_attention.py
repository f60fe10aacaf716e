"""Attention over tuples of tokens, scored by a polynomial of pairs: one layer composes functions.

    y_{l1} = sum over l2..lt of exp(h(Q1_{l1}, .., Qt_{lt}) / d) V2_{l2} * .. * Vt_{lt}  / the same without V

h is a sum of inner products, one for each monomial; `edges` lists them. h = x1 x2 is softmax attention (with
1 / d, not 1 / sqrt(d)); the path x1 x2 + x2 x3 composes two functions. Where the edges form a forest,
messages from the leaves to x1 compute the sum exactly, each edge one attention pass with a bias on its keys:

    L_{c->u}[i] = LSE_j( Qu_i . Qc_j / d + L_c[j] )      M_{c->u}[i] = sum_j softmax_j(..) M_c[j]
    L_u = sum over children c of L_{c->u}                M_u = V_u * product over children c of M_{c->u}

Cost: O(edges * n^2 * d) time and O(n) memory for each slice of queries. Trees that do not hold x1 hang on it
by an edge of score 0: they multiply the output by what they see. Cycles and monomials of three or more
variables are computed over all tuples, for short sequences only.

Source: Chakrabarti, Pitassi, Alman, "Poly-attention", arXiv 2602.02422, theorems 3.1, 3.4, 3.5.
"""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_letters

import torch
from torch import Tensor, nn

from geomix.errors import UnsupportedError
from geomix.mixers.base import Mixer
from geomix.mixers.quadratic import Visible, by_query, check_quadratic, hide_invalid, mix_rows, split_heads
from geomix.mixers.state import State
from geomix.segments import Segments

Edges = Sequence[Sequence[int]]

LETTERS = "".join(letter for letter in ascii_letters if letter not in "bhd")
"""Names of the variables in a sum over all tuples; b, h and d are batch, heads and channels."""
MAX_TUPLES = 1 << 24
"""Scores that the brute force over all tuples may hold, over batch and heads."""


class TreeAttention(Mixer):
    """Mix tokens by attention over tuples of them."""

    def __init__(
        self,
        dim: int,
        *,
        edges: Edges = ((1, 2), (2, 3)),
        heads: int = 8,
        head_dim: int | None = None,
        out_bias: bool = True,
    ) -> None:
        """Build t query and t - 1 value projections.

        Args:
            dim: width of the tokens, C.
            edges: monomials of the polynomial, variables from 1; x1 is the token that reads.
            heads: number of heads.
            head_dim: width of a head; None: dim / heads.
            out_bias: bias of the output projection.

        Raises:
            UnsupportedError: if the edges do not name the variables 1 to t, each monomial with two or more.
        """
        super().__init__()
        self.edges = check_edges(edges)
        self.forest = children_of(self.edges)
        self.dim, self.heads, self.head_dim = dim, heads, split_heads(dim, heads, head_dim)
        self.variables = max(map(max, self.edges))
        inner = heads * self.head_dim
        self.queries = nn.Linear(dim, self.variables * inner, bias=False)
        # Scores are divided by d, not sqrt(d): give them unit variance at the start all the same.
        nn.init.normal_(self.queries.weight, std=self.head_dim**0.25 / dim**0.5)
        self.values = nn.Linear(dim, (self.variables - 1) * inner)
        # Values multiply: around 0 their product would vanish with the number of variables.
        nn.init.constant_(self.values.bias, 1.0 if self.variables > 2 else 0.0)
        self.out = nn.Linear(inner, dim, bias=out_bias)

    def forward(
        self,
        x: Tensor,
        segments: Segments | None = None,
        *,
        state: State | None = None,
        return_state: bool = False,
    ) -> Tensor:
        """Mix tokens; arguments and results as for `Attention`.

        In causal and block-causal segments every edge looks back: a child is seen by its parent.

        Raises:
            UnsupportedError: if a state or a window is asked for; for polynomials with cycles or monomials of
                three or more variables also if the segments are causal or the sequences too long.
        """
        segments = check_quadratic("tree_attention", self.dim, x, segments, state, return_state)
        if self.forest is None and not segments.is_full:
            raise UnsupportedError(
                "a polynomial with cycles or monomials of three variables has no causal form; "
                "use a forest of edges"
            )
        count, shape = self.variables, (self.heads, self.head_dim)
        projected = torch.cat([self.queries(x), self.values(x)], -1).view(
            *x.shape[:-1], 2 * count - 1, *shape
        )
        mixed = mix_rows(projected, segments, self._mix)
        return hide_invalid(self.out(mixed.flatten(-2)), segments)

    def _mix(self, projected: Tensor, visible: Visible) -> Tensor:
        parts = projected.permute(2, 0, 3, 1, 4)  # [2t - 1, B, heads, N, d]
        queries, values = parts[: self.variables], parts[self.variables :]
        if self.forest is None:
            return over_all_tuples(queries, values, self.edges, visible.valid).transpose(1, 2)
        return over_forest(queries, values, self.forest, visible).transpose(1, 2)


def check_edges(edges: Edges) -> tuple[tuple[int, ...], ...]:
    """Check the monomials and return them as tuples.

    Raises:
        UnsupportedError: if a monomial has fewer than two variables or one twice, is given twice, or a
            variable is missing.
    """
    monomials = tuple(tuple(int(variable) for variable in edge) for edge in edges)
    named = {variable for edge in monomials for variable in edge}
    if any(len(edge) < 2 or len(set(edge)) < len(edge) for edge in monomials):
        raise UnsupportedError(
            f"each edge needs two or more different variables, got {[list(e) for e in monomials]}"
        )
    if not named or named != set(range(1, max(named) + 1)):
        raise UnsupportedError(f"edges must name the variables 1 to t without a gap, got {sorted(named)}")
    if len(named) > len(LETTERS):
        raise UnsupportedError(f"edges may name up to {len(LETTERS)} variables, got {len(named)}")
    twice = [list(edge) for i, edge in enumerate(monomials) if set(edge) in map(set, monomials[:i])]
    if twice:
        raise UnsupportedError(
            f"each edge may be given once, in either direction; {twice[0]} is given again: leave it out"
        )
    return monomials


def children_of(edges: tuple[tuple[int, ...], ...]) -> dict[int, list[tuple[int, bool]]] | None:
    """Hang a forest on variable 1.

    Returns:
        The children of each variable, and whether each hangs by a real edge (False: by one of score 0); None
        where the edges have a cycle or a monomial has three or more variables.
    """
    if any(len(edge) > 2 for edge in edges):
        return None
    variables = max(map(max, edges))
    neighbours: dict[int, list[int]] = {v: [] for v in range(1, variables + 1)}
    for a, b in edges:
        neighbours[a].append(b)
        neighbours[b].append(a)
    children: dict[int, list[tuple[int, bool]]] = {v: [] for v in neighbours}
    seen: set[int] = set()
    trees = 0
    for root in neighbours:
        if root in seen:
            continue
        trees += 1
        if root != 1:
            children[1].append((root, False))
        stack = [root]
        seen.add(root)
        while stack:
            parent = stack.pop()
            for child in neighbours[parent]:
                if child not in seen:
                    seen.add(child)
                    children[parent].append((child, True))
                    stack.append(child)
    return children if len(edges) == variables - trees else None


def over_forest(
    queries: Tensor, values: Tensor, children: dict[int, list[tuple[int, bool]]], visible: Visible
) -> Tensor:
    """Sum over all tuples by messages from the leaves to variable 1.

    Args:
        queries: Q1 to Qt, [t, B, heads, N, d].
        values: V2 to Vt, [t - 1, B, heads, N, d].
        children: the forest, from `children_of`.
        visible: which token sees which.

    Returns:
        [B, heads, N, d].
    """

    def message(variable: int) -> tuple[Tensor | None, Tensor | None]:
        bias, value = None, None if variable == 1 else values[variable - 2]
        for child, is_edge in children[variable]:
            child_bias, child_value = message(child)
            if child_value is None:
                raise ValueError("only variable 1 has no value")
            query = queries[variable - 1] if is_edge else torch.zeros_like(queries[variable - 1])
            mixed, total = _edge(query, queries[child - 1], child_value, child_bias, visible)
            value = mixed if value is None else value * mixed
            bias = total if bias is None else bias + total
        return bias, value

    _, result = message(1)
    if result is None:
        raise ValueError("variable 1 needs an edge")
    return result


def _edge(q: Tensor, k: Tensor, m: Tensor, bias: Tensor | None, visible: Visible) -> tuple[Tensor, Tensor]:
    """Send a message along one edge: what each query takes of `m`, [.., N, d], and log-sum-exp, [.., N]."""
    width = q.shape[-1]

    def attend(queries: slice) -> tuple[Tensor, ...]:
        score = q[:, :, queries] @ k.mT / width
        if bias is not None:
            score = score + bias[:, :, None, :]
        mask = visible.mask(queries)
        if mask is not None:
            score = score.masked_fill(~mask[:, None], -torch.inf)
            # A query that sees nothing, or only keys that see nothing, must not poison the others: 0 scores
            # now, a 0 output below, and no weight further up.
            nothing = (score == -torch.inf).all(-1, keepdim=True)
            score = score.masked_fill(nothing, 0.0)
        mixed, total = score.softmax(-1) @ m, score.logsumexp(-1)
        if mask is None:
            return mixed, total
        return mixed.masked_fill(nothing, 0.0), total.masked_fill(nothing.squeeze(-1), -torch.inf)

    rows = by_query(q.shape[2], attend)
    return torch.cat([mixed for mixed, _ in rows], dim=2), torch.cat([total for _, total in rows], dim=2)


def over_all_tuples(queries: Tensor, values: Tensor, edges: Edges, valid: Tensor | None) -> Tensor:
    """Sum over all tuples one by one: any polynomial, full context, O(n^t) time and memory.

    Args:
        queries: Q1 to Qt, [t, B, heads, N, d].
        values: V2 to Vt, [t - 1, B, heads, N, d].
        edges: monomials of the polynomial.
        valid: which tokens exist, bool [B, N], or None for all.

    Returns:
        [B, heads, N, d].

    Raises:
        UnsupportedError: if there are more than MAX_TUPLES tuples, over batch and heads.
    """
    variables, batch, heads, length, width = queries.shape
    tuples = batch * heads * length**variables
    if tuples > MAX_TUPLES:
        raise UnsupportedError(
            f"this polynomial needs all {variables}-tuples of {length} tokens, {tuples:,} scores of at most "
            f"{MAX_TUPLES:,}; use edges without a cycle, or shorter sequences"
        )
    axes = LETTERS[:variables]
    score = queries.new_zeros(batch, heads, *[length] * variables)
    for edge in edges:
        inputs = ",".join(f"bh{axes[v - 1]}d" for v in edge)
        inner = torch.einsum(
            f"{inputs}->bh{''.join(axes[v - 1] for v in sorted(edge))}", *(queries[v - 1] for v in edge)
        )
        for axis in range(variables):
            if axis + 1 not in edge:
                inner = inner.unsqueeze(2 + axis)
        score = score + inner / width
    if valid is not None:
        for axis in range(1, variables):
            shape = [batch, 1, *[1] * variables]
            shape[2 + axis] = length
            score = score.masked_fill(~valid.view(shape), -torch.inf)
        score = score.masked_fill(~valid.any(1).view(batch, 1, *[1] * variables), 0.0)
    weights = score.flatten(3).softmax(-1).view(score.shape)
    inputs = ",".join(f"bh{axis}d" for axis in axes[1:])
    mixed = torch.einsum(f"bh{axes},{inputs}->bh{axes[0]}d", weights, *values)
    return mixed if valid is None else mixed * valid.any(1).view(batch, 1, 1, 1)


def tree_attention_reference(queries: Tensor, values: Tensor, edges: Edges, sees: Tensor) -> Tensor:
    """Compute a forest from the definition, tuple by tuple, with every edge masked; for tests on tiny inputs.

    Args:
        queries: Q1 to Qt of one head, [t, N, d].
        values: V2 to Vt of one head, [t - 1, N, d].
        edges: pairs (parent, child).
        sees: which token sees which, bool [N, N].

    Returns:
        [N, d].
    """
    variables, length, width = queries.shape
    places = torch.cartesian_prod(*[torch.arange(length)] * variables).view(-1, variables)
    score, allowed = queries.new_zeros(len(places)), torch.ones(len(places), dtype=torch.bool)
    for a, b in edges:
        i, j = places[:, a - 1], places[:, b - 1]
        score = score + (queries[a - 1][i] * queries[b - 1][j]).sum(-1) / width
        allowed &= sees[i, j]
    weight = score.exp() * allowed
    product = torch.ones(len(places), values.shape[-1], dtype=values.dtype)
    for variable in range(2, variables + 1):
        product = product * values[variable - 2][places[:, variable - 1]]
    zeros = values.new_zeros(length, width)
    total = zeros.index_add(0, places[:, 0], weight[:, None] * product)
    norm = values.new_zeros(length).index_add(0, places[:, 0], weight)
    return torch.where(norm[:, None] > 0, total / norm[:, None].clamp(min=1e-300), 0.0)
