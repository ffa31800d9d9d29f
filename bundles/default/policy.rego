package apps.default

import data.acm

deny contains r if some r in acm.deny

defer contains r if some r in acm.defer

approve if acm.clear
