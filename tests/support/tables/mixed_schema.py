# SPDX-License-Identifier: Apache-2.0
"""A schema with a column of each kind that miners meet: whole numbers, shares, missing values, a single value; classes and a mean to predict."""

from pinq.public.schema import Categorical, Numeric, Schema

SCHEMA = Schema(
    columns={
        "age": Numeric(lower=17, upper=90, integer=True),
        "rate": Numeric(lower=0, upper=1, nullable=True),
        "job": Categorical(values=("private", "self", "state", "none"), nullable=True),
        "sex": Categorical(values=("F", "M")),
        "only": Categorical(values=("one",)),
        "wage": Numeric(lower=0, upper=50, nullable=True),
        "income": Categorical(values=(">50K", "<=50K"), nullable=True),
    },
    max_rows=5000,
)
