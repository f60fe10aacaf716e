"""Short French sentences made from a few words, so that a text needs no corpus."""

import numpy as np

_SUBJECTS = (
    "le jardin|la maison|un voyageur|notre école|ce vieux livre|une lettre|le maître|la rivière|mon frère"
)
_VERBS = "garde|cherche|montre|oublie|traverse|décrit|reçoit|appelle|attend|rappelle"
_OBJECTS = (
    "les fenêtres ouvertes|deux cents pages|la première neige|un chemin étroit|l'hiver de 1847|son courage|"
    "les voisins|une tasse de thé|quelques mots|la forêt"
)
_PLACES = (
    "près du port|à Québec|dans la cour|au mois d'août|vers midi|sous l'orme|avant la fête|depuis 3 jours"
)


def sentence(rng: np.random.Generator) -> str:
    """Draw a sentence of six to twelve words."""
    parts = [str(rng.choice(words.split("|"))) for words in (_SUBJECTS, _VERBS, _OBJECTS, _PLACES)]
    text = " ".join(parts)
    return text[0].upper() + text[1:] + str(rng.choice([".", ",", " ;", " !"]))
