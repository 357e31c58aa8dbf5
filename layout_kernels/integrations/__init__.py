# SPDX-License-Identifier: Apache-2.0
"""Thin adapters to other frameworks; each imports its framework when it is used, and none needs another."""
