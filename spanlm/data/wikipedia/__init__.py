"""A corpus of Wikipedia articles, made as Daniluk et al. (2017, §4) describe theirs; `building` is the way in."""
