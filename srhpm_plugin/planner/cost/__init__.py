"""How fast a plan will be: from a machine's figures (``srhpm_plugin.calibrate``) to tokens/s.

Four steps, each a hook: what passes cost (:mod:`.costs`), what is accepted (:mod:`.acceptance`),
whether and how far to draft (:mod:`.speculation`), and the speed that follows (:mod:`.predict`).
"""
