"""The words that synthetic prompts are made of: common, neutral, no two alike.

256, so that one random byte picks one. With SmolLM2's tokenizer a word behind a
space is 1.03 tokens on average. Knows nothing of prompts or seeds.
"""

_TEXT = """
able acorn air alder amber anchor angle apple april arch arm ash aspen atlas autumn axis bag
bake ball bank barn basin basket bath bay beach bean bear beech bell bench berry bird blue board
boat bolt book boot bottle bowl box branch brass bread brick bridge broom brown brush bucket
butter button cabin cable cake camera candle canvas card cart castle cedar chain chair chalk
cherry circle clay cliff clock cloud clover coast coat coin comb copper coral cork corn corner
cotton cover cream creek crown cup curtain dawn deck deep desk dish dome door dozen dress drum
dune dust eagle early earth east echo edge egg elbow elm engine evening fabric fair farm feather
fence fern ferry field finger fish flag flame flat flint floor flour flower flute foam fog
forest fork fox frame frost fruit garden gate glass globe glove goat gold grain granite grape
grass gravel green hall hammer harbor harvest hat hazel helmet hill hinge honey horn horse house
ink inlet iron island ivory ivy jacket jar kettle key kite kitchen knot ladder lake lamp lantern
lawn leaf leather lemon lens level lily lime linen lock log loom maple marble march market
meadow metal milk mill mint mirror moon moss mountain narrow needle nest north oak oat ocean
olive onion orange orchard oven owl paddle page paint paper path pear pebble pencil pepper piano
pine pipe plain plate plum pocket pond quartz quiet rain ribbon ridge river road robin roof rope
rose salt sand saddle shelf silver snow spoon stone table
"""

WORDS = tuple(_TEXT.split())
"""The vocabulary. Its order decides what a seed gives, so it stays as it is."""
