"""Makes preferences.json: invented preferences (CC0, ours), judged by the functions of alpaca-eval 0.6.6 (Apache-2.0) themselves.

    pip download alpaca-eval==0.6.6 --no-deps; unzip it; pip install scikit-learn==1.5.2 pandas patsy
    python preferences.py alpaca_eval/metrics/glm_winrate.py > preferences.json

Their cross-validated L1 penalty is set to 1e-8 by Cs=[1e8]: what is left is the fit that Lathe makes too.
"""
import json, sys, warnings
from typing import *
import numpy as np, pandas as pd, sklearn
from patsy import build_design_matrices, dmatrix
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV
from sklearn.metrics import log_loss as sk_log_loss, make_scorer
from sklearn.model_selection import GroupKFold, StratifiedKFold
warnings.filterwarnings("ignore")
src = open(sys.argv[1]).read()
for name in ["logloss", "logloss_continuous", "make_dmatrix_for_model", "fit_LogisticRegressionCV"]:
    start = src.index(f"def {name}(")
    end = src.find("\ndef ", start + 1)
    exec(src[start:end if end > 0 else None])

def lc(df, formula):
    df = df.copy()
    delta = df["len_reference"] - df["len_model"]
    df["std_delta_len"] = delta / delta.std()
    df["not_gamed_baseline"] = True
    test = df.copy(); test["std_delta_len"] = 0
    xy, xt = make_dmatrix_for_model(df, test, formula=formula)
    model = fit_LogisticRegressionCV(xy, "preference", is_ytrue_proba=True, n_splits=5, Cs=[1e8], tol=1e-10, max_iter=100000)
    p = model.predict_proba(xt)[:, 1]
    return p.mean(), pd.Series(p).sem(), dict(zip(xt.columns, model.coef_[0].tolist()))

MINIMAL = "np.tanh(std_delta_len) + not_gamed_baseline.astype(float) - 1"
NOREG = "np.tanh(std_delta_len) + instruction_difficulty + not_gamed_baseline.astype(float) - 1"

if __name__ == "__main__":
    rng = np.random.default_rng(7)
    out = []
    for name, bias, length, spread in [("even", 0.0, 0.8, 1.2), ("verbose", -0.4, 1.5, 0.8), ("weak", -2.0, 0.5, 1.0)]:
        n = 160
        ref = rng.integers(200, 3000, n)
        own = np.maximum(20, ref * np.exp(rng.normal(0.3 if name == "verbose" else -0.1, 0.5, n))).astype(int)
        hard = rng.normal(0, 1, n).round(3)
        x = bias + length * np.tanh((own - ref) / (own - ref).std()) - 0.7 * hard + rng.normal(0, spread, n)
        p = (1 / (1 + np.exp(-2.5 * x))).round(6)
        p[:4] = 0.5
        df = pd.DataFrame(dict(preference=p, len_reference=ref, len_model=own, instruction_difficulty=hard))
        m, n_ = lc(df, MINIMAL), lc(df, NOREG)
        out.append(dict(name=name, preference=p.tolist(), len_model=own.tolist(), len_reference=ref.tolist(), difficulty=hard.tolist(),
            win_rate=df.preference.mean(), standard_error=df.preference.sem(), discrete_win_rate=float(((p > .5) + .5 * (p == .5)).mean()),
            minimal=dict(win_rate=m[0], length_effect=-m[2]["np.tanh(std_delta_len)"]),
            noreg=dict(win_rate=n_[0], length_effect=-n_[2]["np.tanh(std_delta_len)"])))
    json.dump(out, sys.stdout, separators=(",", ":"))
