"""Two replicates for each release that is made in this process: most tests ask for no interval, and each replicate is a fit."""

from dpcore.answers import replicates

replicates.REPLICATES = 2
