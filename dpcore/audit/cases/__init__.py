"""All audits of mechanisms: every mechanism of `dpcore.mechanisms`, and the steps in which a run or a question draws with them."""

from collections.abc import Callable, Mapping

from dpcore.audit.case import Case
from dpcore.audit.cases.choices import counts_above, noisy_choice, noisy_quantiles, top_categories
from dpcore.audit.cases.gates import gates
from dpcore.audit.cases.histograms import noisy_histogram
from dpcore.audit.cases.limits import limits
from dpcore.audit.cases.means import bounded_mean
from dpcore.audit.cases.noise import calibrated, gaussian, laplace, rounded
from dpcore.audit.cases.norms import person_norms
from dpcore.audit.cases.persons import person_rows
from dpcore.audit.cases.responses import randomized_response
from dpcore.audit.cases.selections import exponential, noisy_max
from dpcore.audit.cases.sparse_vectors import above_threshold, sparse_vector
from dpcore.audit.cases.steps import asking, bought_sums, measuring
from dpcore.audit.cases.trees import private_tree
from dpcore.audit.cases.values import bounded_sum, noisy_count, noisy_value

CASES: Mapping[str, Callable[[], Case]] = {
    "discrete-laplace": laplace,
    "discrete-gaussian": gaussian,
    "rounded-gaussian": rounded,
    "calibrated-gaussian": calibrated,
    "exponential": exponential,
    "report-noisy-max": noisy_max,
    "above-threshold": above_threshold,
    "sparse-vector": sparse_vector,
    "randomized-response": randomized_response,
    "noisy-count": noisy_count,
    "noisy-value": noisy_value,
    "bounded-sum": bounded_sum,
    "bounded-mean": bounded_mean,
    "noisy-histogram": noisy_histogram,
    "noisy-quantiles": noisy_quantiles,
    "top-categories": top_categories,
    "noisy-choice": noisy_choice,
    "counts-above": counts_above,
    "private-tree": private_tree,
    "measuring-step": measuring,
    "limit-choice": limits,
    "person-rows": person_rows,
    "person-norms": person_norms,
    "asking-step": asking,
    "bought-sums": bought_sums,
    "gate-step": gates,
}
"""By name, in display order."""

__all__ = ["CASES"]
