"""Signals: frames, changes of rate, envelopes, spectra of arrays of sensors."""

from __future__ import annotations

import numpy as np

from bench.race.program import case, jax, jnp, lax, normal, program, uniform


def frames(x, size, step):
    """Overlapping windows, as programs without gathers write them."""
    count = (x.shape[-1] - size) // step + 1
    return jnp.stack([x[..., k * step : k * step + size] for k in range(count)], -2)


@program(bound=1e-3, small=case(normal(2, 640), size=64), medium=case(normal(16, 16384), size=512))
def spectrogram(x, size):
    windowed = frames(x, size, size // 2) * jnp.hanning(size)
    return 10 * jnp.log10(jnp.abs(jnp.fft.rfft(windowed)) ** 2 + 1e-8)


@program(small=case(normal(2, 96)), medium=case(normal(4, 2048)))
def resample_by_phases(x):
    """Three samples for two."""
    taps = jnp.sinc((jnp.arange(48) - 23.5) / 3) * jnp.hamming(48)
    spread = jnp.zeros((*x.shape, 3)).at[..., 0].set(x).reshape(x.shape[0], -1)
    last = spread.shape[-1] - 48
    return (jnp.stack([spread[:, k : k + last] for k in range(48)], -1) @ taps)[:, ::2]


@program(small=case(normal(2, 240)), medium=case(normal(8, 3840)))
def hilbert_envelope(x):
    n = x.shape[-1]
    gain = np.zeros(n, np.float32)
    gain[[0, n // 2]], gain[1 : n // 2] = 1, 2
    return jnp.abs(jnp.fft.ifft(jnp.fft.fft(x) * gain))


@program(bound=1e-3, small=case(normal(2, 12, 24), steps=3), medium=case(normal(2, 64, 128), steps=20))
def subspace_spectrum(x, steps):
    """Of what sensors in a row receive: how little of each direction lies in the largest subspace."""
    received = x[0] + 1j * x[1]
    sensors = received.shape[0]
    covariance = received @ received.conj().T / received.shape[1]

    def step(_, basis):
        basis = covariance @ basis
        return basis / jnp.linalg.norm(basis, axis=0)

    basis = lax.fori_loop(0, steps, step, jnp.eye(sensors, 2, dtype=jnp.complex64))
    directions = jnp.exp(1j * jnp.pi * jnp.arange(sensors)[:, None] * jnp.linspace(-1, 1, 2 * sensors + 1))
    return 1 / (jnp.abs(basis.conj().T @ directions) ** 2).sum(0)


@program(small=case(uniform(-1, 1, 16, 16), steps=3), medium=case(uniform(-1, 1, 128, 128), steps=30))
def edge_preserving_diffusion(x, steps):
    def step(x, _):
        wide = jnp.pad(x, 1, mode="edge")
        slopes = [wide[:-2, 1:-1] - x, wide[2:, 1:-1] - x, wide[1:-1, :-2] - x, wide[1:-1, 2:] - x]
        return x + 0.2 * sum(jnp.exp(-((s / 0.5) ** 2)) * s for s in slopes), None

    return lax.scan(step, x, None, length=steps)[0]


@program(small=case(normal(64)), medium=case(normal(16384)))
def autocorrelation(x):
    f = jnp.fft.fft(x, 2 * x.size)
    return jnp.fft.ifft(f * jnp.conj(f)).real[:x.size]


@program(bound=1e-3, small=case(normal(2, 64), normal(16)), medium=case(normal(8, 16384), normal(256)))
def convolved_by_fft(x, taps):
    """At lengths that are what they are: 79 points, and 16639."""
    n = x.shape[-1] + taps.shape[-1] - 1
    return jnp.fft.irfft(jnp.fft.rfft(x, n) * jnp.fft.rfft(taps, n), n)


@program(small=case(normal(4, 31)), medium=case(normal(16, 4099)))
def prime_spectrum(x):
    return jnp.abs(jnp.fft.rfft(x))


@program(small=case(normal(12), normal(12)), medium=case(normal(1009), normal(1009)))
def phase_correlation(a, b):
    """By how much a signal is shifted against another."""
    cross = jnp.fft.fft(a) * jnp.conj(jnp.fft.fft(b))
    found = jnp.fft.ifft(cross / (jnp.abs(cross) + 1e-9)).real
    return found, jnp.argmax(found)


@program(small=case(normal(2, 30), size=4), medium=case(normal(32, 4000), size=20))
def rolling_statistics(x, size):
    """Means and deviations of windows, by sums up to each place."""
    sums, squares = (jnp.cumsum(jnp.pad(y, ((0, 0), (1, 0))), 1) for y in (x, x * x))
    mean = (sums[:, size:] - sums[:, :-size]) / size
    variance = (squares[:, size:] - squares[:, :-size]) / size - mean * mean
    return mean, jnp.sqrt(jnp.maximum(variance, 0)), (x[:, size - 1 :] - mean) / jnp.sqrt(jnp.maximum(variance, 1e-6))


@program(small=case(normal(3, 40), normal(8)), medium=case(normal(16, 8000), normal(32)))
def matched_filter(x, template):
    template = (template - template.mean()) / template.std()
    energy = jnp.cumsum(jnp.pad(x * x, ((0, 0), (1, 0))), 1)
    energy = energy[:, template.size :] - energy[:, : -template.size]
    found = jax.vmap(lambda row: jnp.correlate(row, template, mode="valid"))(x) / jnp.sqrt(jnp.maximum(energy, 1e-6))
    return found.max(1), found.argmax(1)


@program(small=case(normal(128), n=16), medium=case(normal(32000), n=512))
def mel_cepstrum(x, n=16):
    hop = n // 2
    m = (x.shape[0] - n) // hop + 1
    i = np.arange(m)[:, None] * hop + np.arange(n)
    w = jnp.asarray(np.hanning(n).astype(np.float32))
    s = jnp.abs(jnp.fft.rfft(x[i] * w, axis=1)) ** 2
    k = s.shape[1]
    b = 8 if n < 100 else 40
    c = np.linspace(0, k - 1, b + 2) ** 1.0
    fb = np.maximum(
        0,
        np.minimum(
            (np.arange(k)[None] - c[:-2, None]) / (c[1:-1] - c[:-2])[:, None],
            (c[2:, None] - np.arange(k)[None]) / (c[2:] - c[1:-1])[:, None],
        ),
    ).astype(np.float32)
    e = jnp.log(s @ fb.T + 1e-6)
    d = np.cos(np.pi * np.arange(b)[:, None] * (np.arange(b)[None] + 0.5) / b).astype(np.float32)
    return e @ d.T


@program(small=case(normal(2, 16, 4), normal(4, 16, scale=0.3)), medium=case(normal(4, 2048, 64), normal(64, 2048, scale=0.02)))
def gated_long_convolution(x, h):
    n = x.shape[1]

    def f(t):
        return jnp.fft.rfft(t, 2 * n, axis=-1)

    y = jnp.fft.irfft(f(x.swapaxes(1, 2)) * f(h), 2 * n, axis=-1)[..., :n].swapaxes(1, 2)
    return y * jax.nn.silu(x)
